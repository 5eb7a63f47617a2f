#include "collectives/planning/tuning_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tutti/error.hpp>
#include <tutti/tutti.hpp>

#include "common/fd.h"
#include "common/text.h"
#include "topology/caches.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 2;
constexpr std::uintmax_t kMostTuningBytes = 1 << 20;
constexpr int kMostDepth = 16;  // objects in objects; functions on JSON call themselves for each

int line_of(const std::string& text, std::size_t position) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(position, text.size()));
  return 1 + static_cast<int>(std::count(text.begin(), end, '\n'));
}

/// A tuning file, as text and parsed.
class TuningReader {
 public:
  explicit TuningReader(const fs::path& path) : path_(path) {
    const auto unreadable = [&](std::string_view why) {
      throw Error(ErrorKind::usage,
                  fmt::format("the tuning file {} cannot be read: {}", path.string(), why));
    };
    // Opening a pipe could block forever, and reading a device need not end.
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (status.type() == fs::file_type::not_found) unreadable("No such file or directory");
    if (failed) unreadable(failed.message());
    if (!fs::is_regular_file(status)) unreadable("it is not a plain file");
    const std::uintmax_t bytes = fs::file_size(path, failed);
    if (failed) unreadable(failed.message());
    if (bytes > kMostTuningBytes) unreadable("it has more than 1 MiB");
    std::ifstream file(path, std::ios::binary);
    if (!file.is_open()) unreadable(std::strerror(errno));
    text_.resize(bytes);
    file.read(text_.data(), static_cast<std::streamsize>(bytes));
    text_.resize(static_cast<std::size_t>(file.gcount()));
    parse();
    if (!json_.is_object()) refuse(0, "is no object");
  }

  /// Returns the number, string or object `name` of `within`, whose text begins at position `from`.
  const Json& field(const Json& within, std::string_view name, std::size_t from) const {
    if (!within.is_object() || !within.contains(name))
      refuse(from, fmt::format("lacks the field \"{}\"", name));
    return within.at(std::string(name));
  }
  const Json& all() const { return json_; }

  /// Returns the position of `name` as a key after position `from`.
  std::size_t place(std::string_view name, std::size_t from) const {
    const std::size_t found = text_.find(fmt::format("\"{}\"", name), from);
    return found == std::string::npos ? from : found;
  }

  std::int64_t number(const Json& within, std::string_view name, std::int64_t least,
                      std::int64_t most, std::size_t from) const {
    const Json& value = field(within, name, from);
    const auto given = value.is_number_integer() ? value.get<std::int64_t>() : least - 1;
    if (given < least || given > most)
      refuse(place(name, from), fmt::format("\"{}\" is {}; it must be a whole number from {} to {}",
                                            name, shown(value.dump()), least, most));
    return given;
  }

  template <typename Record>
  void numbers(const Json& within, std::span<const CostField<Record>> fields, Record& record,
               std::size_t from) const {
    for (const CostField<Record>& field : fields) {
      const bool former = !field.former_name.empty() && within.contains(field.former_name);
      record.*field.member =
          number(within, former ? field.former_name : field.name, field.least, field.most, from);
    }
  }

  [[noreturn]] void refuse(std::size_t position, const std::string& why) const {
    throw Error(ErrorKind::usage,
                fmt::format("{}:{}: the tuning file {}; make it anew with tutti-perf --tune",
                            path_.string(), line_of(text_, position), why));
  }

 private:
  void parse() {
    const auto check_depth = [this](int depth, Json::parse_event_t, const Json&) {
      if (depth > kMostDepth) refuse(0, fmt::format("is nested more than {} deep", kMostDepth));
      return true;
    };
    try {
      json_ = Json::parse(text_, check_depth);
    } catch (const Json::parse_error& error) {
      refuse(error.byte, "is no JSON here");
    } catch (const Json::out_of_range&) {
      refuse(0, "has a number that is too large");
    }
  }

  const fs::path path_;
  std::string text_;
  Json json_;
};

std::string to_text(const MachineId& machine) {
  return fmt::format("{}, {} cpus, {} KiB of cache", machine.model, machine.cpus,
                     machine.cache_bytes >> 10);
}

LinkKind link_named(const TuningReader& reader) {
  const Json& name = reader.field(reader.all(), "anywhere", 0);
  for (std::size_t kind = 0; kind < kLinkKinds; ++kind)
    if (name == to_string(static_cast<LinkKind>(kind))) return static_cast<LinkKind>(kind);
  reader.refuse(reader.place("anywhere", 0),
                fmt::format("\"anywhere\" is {}, which is no kind of link", shown(name.dump())));
}

void check_format(const TuningReader& reader) {
  const Json& format = reader.field(reader.all(), "format", 0);
  if (format != kFormat)
    reader.refuse(reader.place("format", 0),
                  fmt::format("is of format {}, and this version of tutti reads format {}",
                              format.is_number() ? format.dump() : shown(format.dump()), kFormat));
}

void check_machine(const TuningReader& reader, const MachineId& machine) {
  const Json& recorded = reader.field(reader.all(), "machine", 0);
  const std::size_t at = reader.place("machine", 0);
  MachineId of;
  const Json& model = reader.field(recorded, "model", at);
  of.model = model.is_string() ? model.get<std::string>() : model.dump();
  of.cpus = static_cast<int>(reader.number(recorded, "cpus", 1, 1 << 20, at));
  of.cache_bytes = static_cast<std::size_t>(
      reader.number(recorded, "cache_bytes", 0, std::int64_t{1} << 40, at));
  if (of != machine)
    reader.refuse(at, fmt::format("is of another machine ({}; this one is {})", to_text(of),
                                  to_text(machine)));
}

[[noreturn]] void cannot_write(const fs::path& path, int error) {
  throw Error(ErrorKind::unavailable, fmt::format("the tuning file {} cannot be written: {}",
                                                  path.string(), std::strerror(error)));
}

// Writes a file that does not exist yet, so that nobody's link at `path` leads the text elsewhere.
void write_all(const fs::path& path, std::string_view text) {
  ::unlink(path.c_str());  // An earlier process of this number may have left it behind.
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0) cannot_write(path, errno);
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot_write(path, errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  // A pipe cannot be synced.
  if (::fsync(file.get()) != 0 && errno != EINVAL) cannot_write(path, errno);
}

template <typename Record>
Json to_json(std::span<const CostField<Record>> fields, const Record& record) {
  Json json;
  for (const CostField<Record>& field : fields)
    json[std::string(field.name)] = record.*field.member;
  return json;
}

}  // namespace

MachineId this_machine(const fs::path& root) {
  MachineId machine;
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; machine.model.empty() && std::getline(file, line);)
    if (line.starts_with("model name"))
      machine.model = trim(std::string_view(line).substr(line.find(':') + 1));
  machine.cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  machine.cache_bytes = core_cache_bytes(root);
  return machine;
}

fs::path default_tuning_file(Environment environment) {
  const auto cache = find(environment, "XDG_CACHE_HOME");
  if (cache && !cache->empty()) return fs::path(*cache) / "tutti" / "tuning.json";
  const auto home = find(environment, "HOME");
  return home && !home->empty() ? fs::path(*home) / ".cache" / "tutti" / "tuning.json" : fs::path();
}

MachineCosts read_tuning_file(const fs::path& path, const MachineId& machine) {
  const TuningReader reader(path);
  check_format(reader);
  check_machine(reader, machine);
  MachineCosts costs;
  costs.anywhere = link_named(reader);
  reader.numbers(reader.field(reader.all(), "costs", 0), machine_fields(), costs,
                 reader.place("costs", 0));
  const Json& links = reader.field(reader.all(), "links", 0);
  for (std::size_t kind = 0; kind < kLinkKinds; ++kind) {
    const std::string_view name = to_string(static_cast<LinkKind>(kind));
    const std::size_t at = reader.place("links", 0);
    reader.numbers(reader.field(links, name, at), link_fields(), costs.links[kind],
                   reader.place(name, at));
  }
  return costs;
}

void write_tuning_file(const fs::path& path, const MachineCosts& costs, const MachineId& machine) {
  Json json;
  json["format"] = kFormat;
  json["written_by"] = fmt::format("tutti {}", version());
  json["machine"] = {
      {"model", machine.model}, {"cpus", machine.cpus}, {"cache_bytes", machine.cache_bytes}};
  json["anywhere"] = to_string(costs.anywhere);
  json["costs"] = to_json(machine_fields(), costs);
  for (std::size_t kind = 0; kind < kLinkKinds; ++kind)
    json["links"][std::string(to_string(static_cast<LinkKind>(kind)))] =
        to_json(link_fields(), costs.links[kind]);
  std::error_code none;
  // If this fails, open() reports the reason.
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), none);
  fs::path fresh = path;
  fresh += fmt::format(".{}", ::getpid());
  try {
    write_all(fresh, json.dump(2) + "\n");
    if (::rename(fresh.c_str(), path.c_str()) != 0) cannot_write(path, errno);
  } catch (const Error&) {
    ::unlink(fresh.c_str());
    throw;
  }
}

}  // namespace tutti
