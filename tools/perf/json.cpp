#include "perf/json.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include <tutti/error.hpp>

namespace tutti::perf {
namespace {

using Json = nlohmann::ordered_json;

const char* flag(bool value) { return value ? "true" : "false"; }

/// What of the environment bears on the result. nccl-tests writes all of it, passwords too.
Json environment() {
  Json list = Json::array();
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
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
                       {"group", 0},
                       {"pid", device.pid},
                       {"hostname", device.host},
                       {"device", device.core},
                       {"device_hex", "cpu"},
                       {"device_info", device.info}});
  Json config{{"nthreads", 1},
              {"ngpus", 1},
              {"minimum_bytes", options.min_bytes},
              {"maximum_bytes", options.max_bytes}};
  if (options.step_factor > 1)
    config["step_factor"] = options.step_factor;
  else
    config["step_bytes"] = options.step_bytes;
  config.update({{"warmup_iters", options.warmup_iterations},
                 {"iterations", options.iterations},
                 {"aggregated_iterations", 1},
                 {"validation", options.checks},
                 {"graph", 0},
                 {"blocking_collectives", flag(true)},
                 {"per_iter_timing", flag(false)},
                 {"per_iter_skip", 0},
                 {"parallel_init", flag(false)},
                 {"devices", devices}});
  return config;
}

Json timing(const Timing& timing) {
  Json json{{"time", timing.time_us},
            {"alg_bw", timing.algorithm_gb_s},
            {"bus_bw", timing.bus_gb_s},
            {"nwrong", nullptr}};
  if (timing.wrong) json["nwrong"] = static_cast<double>(*timing.wrong);
  if (timing.one_way_ns) json["one_way_ns"] = *timing.one_way_ns;
  return json;
}

Json result(const Row& row) {
  Json json{{"size", row.size_bytes},
            {"count", row.count},
            {"type", row.type},
            {"redop", row.op},
            {"root", fmt::format("{:6}", row.root)},
            {"out_of_place", timing(row.out_of_place)},
            {"in_place", timing(row.in_place)},
            {"actual_iterations", row.in_place.iterations},
            {"experiment_name", ""}};
  if (row.limit_us) json["limit_us"] = *row.limit_us;
  return json;
}

}  // namespace

std::string to_json(const Report& report, const Options& options, std::string_view version) {
  Json results = Json::array();
  for (const Row& row : report.rows) results.push_back(result(row));
  const int wrong = report.summary.wrong_results;
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
                       {{"bandwidth", report.summary.mean_bus_gb_s}, {"okay", "unchecked"}}},
                      {"errors", Json::array()},
                      {"end_time", report.end_time}};
  // An argument may hold any bytes.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local)};
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  for (int attempt = 0; !file_; ++attempt) {
    file_.reset(std::fopen(path_.c_str(), "wx"));
    if (!file_ && errno != EEXIST)
      throw Error(ErrorKind::usage,
                  fmt::format("-J {}: cannot write there: {}", path_, std::strerror(errno)));
    if (!file_) path_ = fmt::format("{}.{}", path, attempt);
  }
}

void OutputFile::write(std::string_view text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                     std::fflush(file_.get()) == 0;
  if (!whole)
    throw Error(ErrorKind::unavailable,
                fmt::format("-J {}: cannot write all of it: {}", path_, std::strerror(errno)));
}

}  // namespace tutti::perf
