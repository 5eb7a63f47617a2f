// Feeds the readers of files that users name, and that anybody may have written.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "collectives/planning/tuning_file.h"
#include "common/bytes.h"
#include "common/fd.h"
#include "common/settings.h"
#include "rendezvous/store/file_store.h"
#include "targets.h"
#include "trace/chrome.h"
#include "trace/report.h"
#include "trace/source.h"

namespace tutti::fuzz {
namespace {

/// A file with certain bytes, which is removed at the end of its scope.
class File {
 public:
  explicit File(std::string_view bytes)
      : path_(std::filesystem::temp_directory_path() / "tutti-fuzz-XXXXXX") {
    const Fd file(mkstemp(path_.data()));
    const bool written =
        file && write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    if (!written) throw std::runtime_error(path_ + ": " + std::strerror(errno));
  }
  ~File() { unlink(path_.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

MachineId machine() { return {"a processor", 4, 1 << 20}; }

// Expects that `read` succeeds or says in an error that the user gave something wrong.
template <typename Read>
void expect_usage_error(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::usage);
  }
}

// Reads a configuration, and reads each setting again as it is shown.
void read_settings(Environment environment) {
  const Config config = resolve_config(environment);
  std::vector<std::string> lines;
  for (const Setting& setting : list_settings(config))
    if (setting.name != "config_file" && !setting.value.empty())
      lines.push_back(setting.variable + "=" + setting.value);
  const Config again = resolve_config(std::vector<std::string_view>(lines.begin(), lines.end()));
  assert(agree_text(again) == agree_text(config));
}

}  // namespace

// The lines are those of a file, and the names and values of environment variables.
void run_settings(std::string_view bytes) {
  const File file(bytes);
  const std::string named = "TUTTI_CONFIG_FILE=" + file.path();
  const std::string_view entry = named;
  expect_usage_error([&] { read_settings({&entry, 1}); });
  std::vector<std::string> variables;
  std::istringstream lines{std::string(bytes)};
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("CONFIG_FILE")) variables.push_back("TUTTI_" + line);
  const std::vector<std::string_view> views(variables.begin(), variables.end());
  expect_usage_error([&] { read_settings(views); });
}

std::vector<std::string> settings_seeds() {
  return {"# of a job\ntimeout_ms = 2000\nbind = 0-3,4-7\n\nmessage_bytes=64K\nstore = tcp://h:1\n",
          "TIMEOUT_MS=2000\nBIND=0-3,4-7\nTLS=yes\nINTERFACES=^eth,ib\nSECRET=0123456789abcdef\n"};
}

void run_tuning_file(std::string_view bytes) {
  const File file(bytes);
  expect_usage_error([&] {
    const MachineCosts costs = read_tuning_file(file.path(), machine());
    const File copy("");
    write_tuning_file(copy.path(), costs, machine());
    read_tuning_file(copy.path(), machine());
  });
}

std::vector<std::string> tuning_file_seeds() {
  const File file("");
  write_tuning_file(file.path(), MachineCosts(), machine());
  const Fd written(::open(file.path().c_str(), O_RDONLY));
  std::string text(1 << 16, '\0');
  text.resize(static_cast<std::size_t>(::read(written.get(), text.data(), text.size())));
  return {text};
}

void run_store_file(std::string_view bytes) {
  const File file(bytes);
  try {
    FileStore store(file.path(), 0, 2, {});
    store.add("sum", 1, {});
    store.get("key", {});
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::timeout ||
           error.kind() == ErrorKind::usage);
  }
}

std::vector<std::string> store_file_seeds() {
  const auto record = [](std::string_view key, std::string_view value) {
    const std::uint32_t lengths[] = {static_cast<std::uint32_t>(key.size()),
                                     static_cast<std::uint32_t>(value.size())};
    return std::string(bytes_of(lengths)).append(key).append(value);
  };
  return {record("key", "value") + record("sum", "17"), record("sum", "many") + record("key", "")};
}

void run_dump(std::string_view bytes) {
  const File file(bytes);
  try {
    std::vector<tools::TracedProcess> processes{tools::read_dump(file.path())};
    const tools::TracedJob job = tools::merge(processes);
    assert(!tools::list(processes).empty());
    tools::report(job);
    tools::to_chrome(job);
  } catch (const std::runtime_error&) {
  }
}

std::vector<std::string> dump_seeds() {
  constexpr std::size_t kCapacity = 2;
  std::string bytes(extent_offset(1, kCapacity), '\0');
  TraceHead head{};
  head.magic = kTraceMagic;
  head.version = kTraceVersion;
  head.capacity = kCapacity;
  head.extents = 1;
  head.dumped.ticks = 100;
  head.dumped.steady_ns = 100;
  RingHead ring{};
  ring.size = 2;
  ring.state = RingState::failed;
  Record record{};
  record.sequence = 1;
  record.began = 10;
  record.ended = 20;
  const auto put = [&](std::size_t offset, const auto& what) {
    std::memcpy(bytes.data() + offset, static_cast<const void*>(&what), sizeof what);
  };
  put(0, head);
  put(kTraceHeadBytes, ring);
  put(kTraceHeadBytes + kRingHeadBytes, record);
  return {bytes};
}

}  // namespace tutti::fuzz
