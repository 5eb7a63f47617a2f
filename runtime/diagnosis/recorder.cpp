#include "runtime/diagnosis/recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "rendezvous/host.h"

namespace tutti {
namespace {

constexpr std::size_t kTracePage = 4096, kLeastCapacity = kTracePage / sizeof(Record);
static_assert(kTraceHeadBytes % kTracePage == 0 && extent_bytes(kLeastCapacity) % kTracePage == 0);

[[noreturn]] void refuse(const std::string& what, int error) {
  throw Error(ErrorKind::unavailable, fmt::format("{}: {}", what, std::strerror(error)));
}

template <typename Clock>
std::int64_t nanoseconds_of() {
  return std::chrono::duration_cast<Nanoseconds>(Clock::now().time_since_epoch()).count();
}

// Reads the three clocks at the same moment. What lies between two readings of the counter is taken
// for its middle, and the shortest of a few attempts counts.
void set_now(Moment& moment) {
  std::uint64_t shortest = ~std::uint64_t{0};
  for (int attempt = 0; attempt < 8; ++attempt) {
    const std::uint64_t before = ticks();
    const std::int64_t steady = nanoseconds_of<std::chrono::steady_clock>();
    const std::uint64_t after = ticks();
    if (after - before >= shortest) continue;
    shortest = after - before;
    moment.ticks.store(before + shortest / 2, std::memory_order_relaxed);
    moment.steady_ns.store(steady, std::memory_order_relaxed);
    moment.real_ns.store(nanoseconds_of<std::chrono::system_clock>(), std::memory_order_relaxed);
  }
}

// Beyond a limit on the size of files the kernel would send a signal, and larger pages would not
// begin where the extents do.
bool may_be_shown() {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY &&
         sysconf(_SC_PAGESIZE) == static_cast<long>(kTracePage);
}

// Returns whether a file may have this size. The limit may have been set meanwhile.
bool may_have(std::size_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur;
}

// Copies as much of a text as fits, with a 0 at its end.
void copy(std::string_view text, std::span<char> into) {
  const std::size_t bytes = std::min(text.size(), into.size() - 1);
  std::memcpy(into.data(), text.data(), bytes);
  into[bytes] = '\0';
}

std::string command_line() {
  std::string text(127, '\0');
  const Fd file(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  const ssize_t bytes = file ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

void write_at(const Fd& file, const void* data, std::size_t bytes, std::size_t offset,
              const std::string& path) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = pwrite(file.get(), at, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) refuse(path, done < 0 ? errno : ENOSPC);
    at += done;
    bytes -= static_cast<std::size_t>(done);
    offset += static_cast<std::size_t>(done);
  }
}

// Copies those records that are not being overwritten.
void copy_records(const Record* records, std::size_t capacity, std::vector<Record>& into) {
  constexpr auto relaxed = std::memory_order_relaxed;
  for (std::size_t i = 0; i < capacity; ++i) {
    ReadRecord found;
    const bool valid = read(records[i], found);
    Record& copied = into[i];
    copied.sequence.store(valid ? found.sequence : 0, relaxed);
    copied.kinds.store(found.kinds, relaxed);
    copied.count.store(found.count, relaxed);
    copied.number.store(found.number, relaxed);
    copied.began.store(found.began, relaxed);
    copied.ended.store(found.ended, relaxed);
    copied.peer.store(found.peer, relaxed);
    copied.more.store(found.more, relaxed);
    copied.waits_for.store(found.waits_for, relaxed);
    copied.outcome.store(found.outcome, relaxed);
  }
}

}  // namespace

TraceMemory::TraceMemory(std::size_t capacity)
    : capacity_(std::bit_ceil(std::max(capacity, kLeastCapacity))),
      file_(may_be_shown() ? memfd_create(kTraceFileName, MFD_CLOEXEC) : -1) {
  if (file_ && ftruncate(file_.get(), kTraceHeadBytes) != 0) file_.reset();
  head_ = static_cast<TraceHead*>(map(0, kTraceHeadBytes, static_cast<bool>(file_)));
  describe_process();
}

TraceMemory::~TraceMemory() {
  for (std::byte* extent : extents_) munmap(extent, extent_bytes(capacity_));
  munmap(head_, kTraceHeadBytes);
}

void* TraceMemory::map(std::size_t offset, std::size_t bytes, bool in_file) const {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            in_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS,
                            in_file ? file_.get() : -1, in_file ? static_cast<off_t>(offset) : 0);
  if (memory == MAP_FAILED)
    refuse(fmt::format("no memory for the trace of the last operations ({} bytes)", bytes), errno);
  return memory;
}

void TraceMemory::describe_process() const {
  TraceHead& head = *head_;
  head.version.store(kTraceVersion, std::memory_order_relaxed);
  head.capacity.store(static_cast<std::uint32_t>(capacity_), std::memory_order_relaxed);
  head.pid.store(getpid(), std::memory_order_relaxed);
  copy(machine_of(host_identity()), head.machine);
  gethostname(head.host.data(), head.host.size() - 1);
  copy(command_line(), head.command);
  set_now(head.made);
  head.magic.store(kTraceMagic, std::memory_order_release);
}

bool TraceMemory::in_own_process() const noexcept {
  return head_->pid.load(std::memory_order_relaxed) == getpid();
}

TraceMemory::Ring TraceMemory::ring_at(std::size_t extent) const noexcept {
  std::byte* const at = extents_[extent];
  return {reinterpret_cast<RingHead*>(at), reinterpret_cast<Record*>(at + kRingHeadBytes)};
}

TraceMemory::Ring TraceMemory::take(const RecordedName& name, int rank, int size) {
  const std::lock_guard lock(mutex_);
  std::size_t extent =
      static_cast<std::size_t>(std::find(free_.begin(), free_.end(), true) - free_.begin());
  if (extent == extents_.size()) {
    const std::size_t offset = extent_offset(extent, capacity_), bytes = extent_bytes(capacity_);
    extents_.reserve(extent + 1);
    free_.reserve(extent + 1);
    // Others read an extent that is not in the file as one that is unused.
    const bool in_file = file_ && may_have(offset + bytes);
    if (in_file && ftruncate(file_.get(), static_cast<off_t>(offset + bytes)) != 0)
      refuse("no memory for the trace of the last operations", errno);
    extents_.push_back(static_cast<std::byte*>(map(offset, bytes, in_file)));
    free_.push_back(true);
  }
  free_[extent] = false;
  const Ring ring = ring_at(extent);
  RingHead& head = *ring.head;
  head.state.store(RingState::unused, std::memory_order_seq_cst);
  head.use.fetch_add(1, std::memory_order_seq_cst);
  for (std::size_t i = 0; i < capacity_ && ring.records[i].sequence.load() != 0; ++i)
    ring.records[i].sequence.store(0, std::memory_order_seq_cst);
  head.identity.store(name.identity, std::memory_order_relaxed);
  head.rank.store(rank, std::memory_order_relaxed);
  head.size.store(size, std::memory_order_relaxed);
  head.world_rank.store(name.world_rank < 0 ? rank : name.world_rank, std::memory_order_relaxed);
  copy(name.name, head.name);
  head.failure_kind.store(0, std::memory_order_relaxed);
  head.store_call.store(StoreCall::none, std::memory_order_relaxed);
  head.state.store(RingState::open, std::memory_order_release);
  if (head_->extents.load(std::memory_order_relaxed) <= extent)
    head_->extents.store(static_cast<std::uint32_t>(extent + 1), std::memory_order_release);
  return ring;
}

void TraceMemory::give_back(const Ring& ring) noexcept {
  if (!in_own_process()) return;
  const std::lock_guard lock(mutex_);
  if (ring.head->state.load(std::memory_order_relaxed) == RingState::open)
    ring.head->state.store(RingState::closed, std::memory_order_release);
  for (std::size_t extent = 0; extent < extents_.size(); ++extent)
    if (ring_at(extent).head == ring.head) free_[extent] = true;
}

void TraceMemory::dump(const std::string& path) const {
  const std::string unfinished = fmt::format("{}.{}.part", path, getpid());
  const std::lock_guard lock(mutex_);  // dumps of several threads come one after the other
  const std::size_t whole = extent_offset(extents_.size(), capacity_);
  if (!may_have(whole)) refuse(path, EFBIG);
  const Fd file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                     S_IRUSR | S_IWUSR));
  if (!file) refuse(unfinished, errno);
  try {
    Moment now;
    set_now(now);
    write_at(file, head_, sizeof *head_, 0, unfinished);
    write_at(file, &now, sizeof now, offsetof(TraceHead, dumped), unfinished);
    std::vector<Record> records(capacity_);
    for (std::size_t extent = 0; extent < extents_.size(); ++extent) {
      const Ring ring = ring_at(extent);
      const std::size_t at = extent_offset(extent, capacity_);
      copy_records(ring.records, capacity_, records);
      write_at(file, ring.head, sizeof *ring.head, at, unfinished);
      // Pages that were never used stay a hole in the file.
      std::size_t used = capacity_;
      while (used > 0 && records[used - 1].sequence.load(std::memory_order_relaxed) == 0) --used;
      write_at(file, records.data(), used * sizeof(Record), at + kRingHeadBytes, unfinished);
    }
    if (ftruncate(file.get(), static_cast<off_t>(whole)) != 0) refuse(unfinished, errno);
    if (rename(unfinished.c_str(), path.c_str()) != 0) refuse(path, errno);
  } catch (...) {
    unlink(unfinished.c_str());
    throw;
  }
}

std::string TraceMemory::dump_into(const std::string& folder) const {
  struct stat status {};
  if (file_) fstat(file_.get(), &status);  // its number tells the runtimes of a process apart
  int rank = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!extents_.empty()) rank = ring_at(0).head->world_rank.load(std::memory_order_relaxed);
  }
  const std::string path = fmt::format("{}/rank{}.{}.{}.{}.tuttitrace", folder, rank,
                                       head_->host.data(), getpid(), status.st_ino);
  dump(path);
  return path;
}

Recorder::Recorder()
    : own_(std::make_unique<TraceMemory>(kLeastCapacity)),
      memory_(own_.get()),
      ring_(memory_->take({}, 0, 1)),
      mask_(memory_->capacity() - 1) {}

Recorder::Recorder(TraceMemory& memory, const RecordedName& name, int rank, int size)
    : memory_(&memory), ring_(memory.take(name, rank, size)), mask_(memory.capacity() - 1) {
  assert(std::has_single_bit(memory.capacity()));
}

// If all records are of operations that are under way, the oldest is overwritten.
void Recorder::pass_over() noexcept {
  for (std::uint64_t ahead = 0; ahead <= mask_; ++ahead) {
    if (at(position_ + ahead).ended.load(std::memory_order_relaxed) == Record::kUnderWay &&
        at(position_ + ahead).sequence.load(std::memory_order_relaxed) != 0)
      continue;
    position_ += ahead;
    return;
  }
}

void Recorder::queued(std::uint64_t position, std::uint64_t called) noexcept {
  Record& record = at(position);
  if (record.sequence.load(std::memory_order_relaxed) != position + 1) return;  // overwritten
  const std::uint64_t began = record.began.load(std::memory_order_relaxed);
  const std::uint64_t units = called < began ? (began - called) / Record::kQueuedTicks : 0;
  record.more.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(units, ~std::uint32_t{0})),
                    std::memory_order_relaxed);
}

void Recorder::waits(int peer, TimePoint now) noexcept {
  if (waiting_ != collective_) {
    waiting_ = collective_;
    waits_for_ = longest_for_ = -1;
    longest_ = Nanoseconds::zero();
  }
  if (waits_for_ >= 0 && now - waits_since_ >= longest_) {
    longest_ = now - waits_since_;
    longest_for_ = waits_for_;
  }
  if (peer != waits_for_) waits_since_ = now;
  waits_for_ = peer;
  if (at(collective_).sequence.load(std::memory_order_relaxed) != collective_ + 1) return;
  at(collective_).waits_for.store(peer >= 0 ? peer : longest_for_, std::memory_order_relaxed);
}

std::uint64_t Recorder::write_transfer(const TransferEntry& entry, std::uint64_t began,
                                       std::uint64_t ended) noexcept {
  std::uint64_t position = 0;
  Record& record = next(&position);
  write(record, position, entry.kinds(), entry.count, transfers_[entry.kind & 1]++, began, ended,
        entry.peer);
  end_run();
  return position;
}

std::uint64_t Recorder::begin_transfer(const TransferEntry& entry, std::uint64_t called) noexcept {
  const std::uint64_t position = write_transfer(entry, ticks(), Record::kUnderWay);
  soon_ = {kNone, kNone};
  if (called != 0) queued(position, called);
  return position;
}

void Recorder::enter(StoreCall call) noexcept {
  RingHead& head = *ring_.head;
  head.store_call_began.store(ticks(), std::memory_order_relaxed);
  head.store_call_waits_for.store(-1, std::memory_order_relaxed);
  head.store_call.store(call, std::memory_order_release);
}

void Recorder::failed(ErrorKind kind, std::string_view why) noexcept {
  RingHead& head = *ring_.head;
  copy(why, head.failure);
  head.failure_kind.store(static_cast<std::uint32_t>(kind), std::memory_order_relaxed);
  head.state.store(RingState::failed, std::memory_order_release);
}

}  // namespace tutti
