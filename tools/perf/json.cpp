#include "perf/json.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include <tutti/error.hpp>

#include "common/files.h"

namespace tutti::perf {
namespace {

using Json = nlohmann::ordered_json;

const char* flag(bool value) { return value ? "true" : "false"; }

/// Returns the environment variables that affect the result, except the job's secret. (nccl-tests
/// writes all variables, passwords too.)
Json environment() {
  Json list = Json::array();
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (text.starts_with("TUTTI_SECRET=")) continue;
    for (const std::string_view prefix :
         {"TUTTI_", "RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_"})
      if (text.starts_with(prefix)) list.push_back(text);
  }
  return list;
}

Json config(const Report& report, const Options& options) {
  Json devices = Json::array();
  for (const Device& device : report.devices)
    devices.push_back({{"rank", device.rank},
                       {"group", device.group},
                       {"pid", device.pid},
                       {"hostname", device.host},
                       {"device", device.number},
                       {"device_hex", device.bus},
                       {"device_info", device.info}});
  Json config{{"nthreads", options.threads},
              {"ngpus", options.gpus},
              {"minimum_bytes", options.min_bytes},
              {"maximum_bytes", options.max_bytes}};
  if (options.step_factor > 1)
    config["step_factor"] = options.step_factor;
  else
    config["step_bytes"] = options.step_bytes;
  config.update({{"warmup_iters", options.warmup_iterations},
                 {"iterations", options.iterations},
                 {"aggregated_iterations", options.aggregated},
                 {"validation", options.checks},
                 {"graph", 0},
                 {"blocking_collectives", flag(options.blocking != Blocking::no)},
                 {"per_iter_timing", flag(options.per_iteration)},
                 {"per_iter_skip", options.skipped_iterations},
                 {"parallel_init", flag(options.parallel_init)},
                 {"devices", devices}});
  if (report.mover)
    config["moved_by"] =
        *report.mover == Mover::host || *report.mover == Mover::host_transfers ? "host" : "kernels";
  return config;
}

Json timing(const Timing& timing, const Options& options) {
  Json json{{options.cpu_time ? "cpu_time" : "time", timing.time_us},
            {"alg_bw", timing.algorithm_gb_s},
            {"bus_bw", timing.bus_gb_s},
            {"nwrong", nullptr}};
  if (timing.wrong) json["nwrong"] = static_cast<double>(*timing.wrong);
  if (timing.one_way_ns) json["one_way_ns"] = *timing.one_way_ns;
  return json;
}

Json per_iteration(const IterationTimes& times, const Options& options) {
  const Statistics s = statistics(times);
  Json json{{"skipped_iterations", times.skipped},
            {"min_us", s.min},
            {"max_us", s.max},
            {"avg_us", s.mean},
            {"p50_us", s.p50},
            {"p95_us", s.p95},
            {"p99_us", s.p99},
            {"stdev_us", s.deviation},
            {"cv_pct", s.variation_pct},
            {"times_us", times.slowest_us}};
  // The rows of this table are processes, and threads are all in one process.
  if (options.ranks_of_process() == 1 && times.by_rank.size() > 1)
    json["per_process_max_times_us"] = times.by_rank;
  return json;
}

Json result(const Row& row, const Options& options) {
  Json json{{"size", row.size_bytes},
            {"count", row.count},
            {"type", row.type},
            {"redop", row.op},
            {"root", fmt::format("{:6}", row.root)}};
  const auto add = [&](const std::string& place, const Timing& measured) {
    json[place] = timing(measured, options);
    if (measured.per_iteration)
      json[place + "_per_iter"] = per_iteration(*measured.per_iteration, options);
  };
  add("out_of_place", row.out_of_place);
  add("in_place", row.in_place);
  json["actual_iterations"] = row.in_place.iterations;
  json["experiment_name"] = "";
  if (row.limit_us) json["limit_us"] = *row.limit_us;
  return json;
}

}  // namespace

std::string to_json(const Report& report, const Options& options, std::string_view version) {
  Json results = Json::array();
  for (const Row& row : report.rows) results.push_back(result(row, options));
  const int wrong = report.summary.wrong_results;
  Json bandwidth_okay = "unchecked";
  if (options.min_bus_gb_s)
    bandwidth_okay = flag(passed({0, report.summary.mean_bus_gb_s, 0, 0}, options));
  const Json document{{"version", 3},
                      {"start_time", report.start_time},
                      {"args", report.arguments},
                      {"env", environment()},
                      {"nccl_version", version_code(version)},
                      {"tutti_version", version},
                      {"config", config(report, options)},
                      {"results", results},
                      {"out_of_bounds", {{"count", wrong}, {"okay", flag(wrong == 0)}}},
                      {"average_bus_bandwidth",
                       {{"bandwidth", report.summary.mean_bus_gb_s}, {"okay", bandwidth_okay}}},
                      {"errors", Json::array()},
                      {"end_time", report.end_time}};
  // An argument may contain any bytes.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool is_stream(const std::string& path) {
  std::error_code unknown;
  const auto type = std::filesystem::status(path, unknown).type();
  return type == std::filesystem::file_type::character ||
         type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::socket;
}

namespace {

// Returns standard output or standard error if the path names it (/dev/stdout, say), also where
// that is a plain file.
std::FILE* standard_stream(const std::string& path) {
  struct stat named {
  }, open{};
  if (!path.starts_with("/dev/") && !path.starts_with("/proc/")) return nullptr;
  if (stat(path.c_str(), &named) != 0) return nullptr;
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO})
    if (fstat(descriptor, &open) == 0 && open.st_dev == named.st_dev && open.st_ino == named.st_ino)
      return fdopen(dup(descriptor), "w");
  return nullptr;
}

}  // namespace

OutputFile::OutputFile(std::string option, const std::string& path)
    : option_(std::move(option)), path_(path), file_(standard_stream(path)) {
  const bool stream = !file_ && is_stream(path);
  for (int attempt = 0; !file_; ++attempt) {
    file_.reset(open_to_write(path_, stream ? 0 : O_CREAT | O_EXCL));
    if (!file_ && (stream || errno != EEXIST))
      throw Error(ErrorKind::usage, fmt::format("{} {}: cannot write there: {}", option_, path_,
                                                std::strerror(errno)));
    if (!file_) path_ = fmt::format("{}.{}", path, attempt);
  }
}

void OutputFile::write(std::string_view text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                     std::fflush(file_.get()) == 0;
  if (!whole)
    throw Error(ErrorKind::unavailable, fmt::format("{} {}: cannot write all of it: {}", option_,
                                                    path_, std::strerror(errno)));
}

}  // namespace tutti::perf
