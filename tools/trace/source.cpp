#include "trace/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "common/fd.h"
#include "common/text.h"
#include "common/ticks.h"

namespace tutti::tools {
namespace {

namespace fs = std::filesystem;

// A dump with more of anything is damaged.
constexpr std::size_t kMostCapacity = 1 << 20, kMostExtents = 1 << 16;
constexpr int kMostRanks = 1 << 20;
// Times beyond these, in nanoseconds, are damaged: no machine has run for 15 years, and no job was
// traced before 1970 or after 2065. Sums and differences of a few times within them cannot
// overflow.
constexpr std::int64_t kMostUptime = 500'000'000'000'000'000,
                       kMostCalendar = 3'000'000'000'000'000'000;

[[noreturn]] void refuse(const std::string& source, const std::string& why) {
  throw std::runtime_error(source + ": " + why);
}

// A copy of a part of a file, which is aligned for any record. What lies behind the file's end is
// 0.
class Copy {
 public:
  Copy(const Fd& file, std::size_t offset, std::size_t bytes) : words_((bytes + 7) / 8) {
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t now = pread(file.get(), reinterpret_cast<char*>(words_.data()) + done,
                                bytes - done, static_cast<off_t>(offset + done));
      if (now < 0 && errno == EINTR) continue;
      if (now <= 0) break;
      done += static_cast<std::size_t>(now);
    }
  }
  template <typename T>
  const T* as() const noexcept {
    return reinterpret_cast<const T*>(words_.data());
  }

 private:
  std::vector<std::uint64_t> words_;
};

template <std::size_t bytes>
std::string text_of(const std::array<char, bytes>& text) {
  return escape_controls({text.data(), strnlen(text.data(), bytes)});
}

struct Instant {
  std::uint64_t ticks = 0;
  std::int64_t steady = 0, real = 0;
};

Instant instant_of(const Moment& moment) {
  return {moment.ticks.load(), moment.steady_ns.load(), moment.real_ns.load()};
}

template <typename Clock>
std::int64_t nanoseconds_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

Instant now() {
  return {ticks(), nanoseconds_of<std::chrono::steady_clock>(),
          nanoseconds_of<std::chrono::system_clock>()};
}

// Converts ticks to the steady clock, from two instants.
struct Scale {
  Instant from, to;

  std::int64_t time(std::uint64_t ticks) const {
    const auto run = static_cast<long double>(to.ticks - from.ticks);
    const long double rate =
        to.ticks > from.ticks ? static_cast<long double>(to.steady - from.steady) / run : 1.0L;
    const auto since = static_cast<long double>(static_cast<std::int64_t>(ticks - from.ticks));
    const auto most = static_cast<long double>(kMostUptime);
    return static_cast<std::int64_t>(std::clamp(from.steady + since * rate, -most, most));
  }
};

TracedOperation operation_of(const ReadRecord& record, const Scale& scale) {
  TracedOperation operation;
  operation.record = record;
  operation.began = scale.time(record.began);
  const bool soon = record.ended == Record::kSoon;
  operation.called = scale.time(record.began - (soon ? 0 : record.more) * Record::kQueuedTicks);
  operation.ended = record.ended == Record::kUnderWay ? std::max(scale.to.steady, operation.began)
                    : soon                            ? operation.began + TracedOperation::kSoonNs
                           : std::max(scale.time(record.ended), operation.began);
  return operation;
}

// The records may change meanwhile. Three copies are made, one after the other: a record whose
// sequence is the same in the first and the last copy did not change while the second was made.
void read_records(const Fd& file, std::size_t offset, std::size_t capacity, const Scale& scale,
                  TracedRank& into) {
  const std::size_t bytes = capacity * sizeof(Record);
  const Copy before(file, offset, bytes), copy(file, offset, bytes), after(file, offset, bytes);
  for (std::size_t i = 0; i < capacity; ++i) {
    ReadRecord record;
    const std::uint64_t sequence = before.as<Record>()[i].sequence.load();
    if (!read(copy.as<Record>()[i], record) || record.sequence != sequence ||
        after.as<Record>()[i].sequence.load() != sequence)
      continue;
    if (record.ended == Record::kSoon && record.more > Record::kMore) continue;  // it is damaged
    into.operations.push_back(operation_of(record, scale));
  }
  std::sort(into.operations.begin(), into.operations.end(),
            [](const TracedOperation& a, const TracedOperation& b) {
              return a.record.sequence < b.record.sequence;
            });
}

// Adds the ranks of one trace to `into`. `live` says that the trace is a process's memory.
void read_trace(const Fd& file, bool live, TracedProcess& into) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) refuse(into.source, std::strerror(errno));
  const Copy head_copy(file, 0, kTraceHeadBytes);
  const TraceHead& head = *head_copy.as<TraceHead>();
  if (head.magic.load() != kTraceMagic) refuse(into.source, "it is no trace of tutti");
  if (head.version.load() != kTraceVersion)
    refuse(into.source,
           fmt::format("its records have version {}, and this tutti-trace reads version "
                       "{}: use the tutti-trace of the program's tutti",
                       head.version.load(), kTraceVersion));
  const std::size_t capacity = head.capacity.load();
  const std::size_t extents = head.extents.load();
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (!std::has_single_bit(capacity) || capacity > kMostCapacity || extents > kMostExtents ||
      (!live && extent_offset(extents, capacity) > bytes))
    refuse(into.source, "the trace is damaged or incomplete");
  const Scale scale{instant_of(head.made), live ? now() : instant_of(head.dumped)};
  for (const Instant& each : {scale.from, scale.to})
    if (each.steady < 0 || each.steady > kMostUptime || each.real < 0 || each.real > kMostCalendar)
      refuse(into.source, "the trace is damaged or incomplete");
  into.pid = head.pid.load();
  into.machine = text_of(head.machine);
  into.host = text_of(head.host);
  into.command = text_of(head.command);
  into.read_at = scale.to.steady;
  into.calendar = scale.to.real - scale.to.steady;
  for (std::size_t extent = 0; extent < extents; ++extent) {
    const std::size_t offset = extent_offset(extent, capacity);
    const Copy ring_copy(file, offset, kRingHeadBytes);
    const RingHead& ring = *ring_copy.as<RingHead>();
    TracedRank rank;
    rank.state = ring.state.load();
    rank.identity = ring.identity.load();
    rank.name = text_of(ring.name);
    rank.rank = ring.rank.load();
    rank.size = ring.size.load();
    rank.world_rank = ring.world_rank.load();
    rank.failure_kind = ring.failure_kind.load();
    if (rank.state == RingState::failed) rank.failure = text_of(ring.failure);
    if (const StoreCall call = ring.store_call.load(); call <= StoreCall::agree) {
      rank.store_call = call;
      rank.store_call_began = scale.time(ring.store_call_began.load());
      rank.store_call_waits_for = ring.store_call_waits_for.load();
    }
    read_records(file, offset + kRingHeadBytes, capacity, scale, rank);
    const Copy again(file, offset, kRingHeadBytes);
    const bool same = again.as<RingHead>()->use.load() == ring.use.load();
    if (same && rank.state != RingState::unused && rank.rank >= 0 && rank.rank < rank.size &&
        rank.size <= kMostRanks)
      into.ranks.push_back(std::move(rank));
  }
}

// Opens the anonymous files of a process that are traces. A forked child has those of its parent,
// too, which are passed over. Returns none if the process may not be looked into.
std::optional<std::vector<Fd>> open_traces(pid_t pid) {
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(opendir(folder.c_str()), closedir);
  if (listed == nullptr) return std::nullopt;
  std::vector<Fd> found;
  const std::string wanted = fmt::format("/memfd:{}", kTraceFileName);
  while (const dirent* const entry = readdir(listed.get())) {
    char target[64];
    const ssize_t bytes = readlinkat(dirfd(listed.get()), entry->d_name, target, sizeof target);
    if (bytes < 0 || !std::string_view(target, static_cast<std::size_t>(bytes)).starts_with(wanted))
      continue;
    Fd file(openat(dirfd(listed.get()), entry->d_name, O_RDONLY | O_CLOEXEC));
    if (file) found.push_back(std::move(file));
  }
  return found;
}

// Returns a line of /proc/PID/status, without its name.
std::string status_line(pid_t pid, std::string_view name) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::string(trim(line.substr(name.size())));
  return {};
}

// With a limit on the size of files, the records of a process are private to it.
bool has_file_size_limit(pid_t pid) {
  rlimit limit{};
  return prlimit(pid, RLIMIT_FSIZE, nullptr, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Returns the number by which the process knows itself, in the innermost namespace.
std::int64_t own_number(pid_t pid) {
  const std::string numbers = status_line(pid, "NSpid:");
  const auto last = numbers.find_last_of(" \t");
  return parse_number<std::int64_t>(
             std::string_view(numbers).substr(last == std::string::npos ? 0 : last + 1))
      .value_or(pid);
}

bool is_own(const Fd& trace, std::int64_t number) {
  const Copy head(trace, 0, kTraceHeadBytes);
  return head.as<TraceHead>()->magic.load() == kTraceMagic &&
         head.as<TraceHead>()->pid.load() == number;
}

// Returns the traces that the process itself has made, or none as open_traces() does.
std::optional<std::vector<Fd>> own_traces(pid_t pid) {
  auto traces = open_traces(pid);
  if (!traces) return traces;
  const std::int64_t number = own_number(pid);
  std::erase_if(*traces, [&](const Fd& trace) { return !is_own(trace, number); });
  return traces;
}

void read_folder(const std::string& folder, std::vector<TracedProcess>& into,
                 std::vector<std::string>& damaged) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".tuttitrace") paths.push_back(entry.path());
  if (paths.empty()) refuse(folder, "there is no *.tuttitrace in this folder");
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) try {
      into.push_back(read_dump(path));
    } catch (const std::runtime_error& error) {
      damaged.emplace_back(error.what());
    }
}

}  // namespace

std::vector<pid_t> find_processes() {
  std::vector<pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const auto pid = parse_number<pid_t>(entry.path().filename().string());
    if (!pid) continue;
    const auto traces = own_traces(*pid);
    if (traces && !traces->empty()) found.push_back(*pid);
  }
  std::sort(found.begin(), found.end());
  return found;
}

TracedProcess read_process(pid_t pid) {
  TracedProcess process;
  process.source = fmt::format("process {}", pid);
  if (!fs::exists(fmt::format("/proc/{}", pid))) refuse(process.source, "there is no such process");
  const auto traces = own_traces(pid);
  if (!traces)
    refuse(process.source, errno == EACCES || errno == EPERM
                               ? "not permitted: it belongs to another user, or has more rights; "
                                 "run tutti-trace as its user"
                               : std::strerror(errno));
  if (traces->empty())
    refuse(
        process.source,
        fmt::format("it does not use tutti, or has made no communicator yet, or its tutti is too "
                    "old to record operations{}",
                    has_file_size_limit(pid)
                        ? "; or it does, and has a limit on the size of files (ulimit -f), with "
                          "which only dumps show its operations: lift the limit, or set "
                          "TUTTI_TRACE_DIR"
                        : ""));
  for (const Fd& trace : *traces) read_trace(trace, true, process);
  process.pid = pid;
  const std::string state = status_line(pid, "State:");
  process.stopped = state.starts_with("T") || state.starts_with("t");
  return process;
}

TracedProcess read_dump(const std::string& path) {
  TracedProcess process;
  process.source = path;
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a fifo has no writer
  if (!file) refuse(path, std::strerror(errno));
  read_trace(file, false, process);
  return process;
}

std::vector<TracedProcess> read_all(std::span<const std::string> named,
                                    std::vector<std::string>& damaged) {
  std::vector<TracedProcess> processes;
  if (named.empty())
    for (const pid_t pid : find_processes()) try {
        processes.push_back(read_process(pid));
      } catch (const std::runtime_error&) {
        const auto left = own_traces(pid);
        if (left && !left->empty()) throw;  // else it has just ended
      }
  for (const std::string& each : named) try {
      if (const auto pid = parse_number<pid_t>(each))
        processes.push_back(read_process(*pid));
      else if (fs::is_directory(each))
        read_folder(each, processes, damaged);
      else
        processes.push_back(read_dump(each));
    } catch (const std::runtime_error& error) {
      damaged.push_back(error.what());
    }
  return processes;
}

}  // namespace tutti::tools
