// The flight recorder: the last operations of each communicator, in memory that other processes of
// the user can read at any time, and that vanishes with the process.
//
// Each communicator has a ring of its own: its engine has one owner at a time, so that a ring has
// one writer and needs no lock, and a communicator that is used much does not push out the records
// of one that is used little. Memory is taken only as records are written.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/error.hpp>

#include "common/clock.h"
#include "common/fd.h"
#include "common/sync.h"
#include "common/ticks.h"
#include "runtime/diagnosis/record.h"
#include "transport/status_page.h"

namespace tutti {

/// Says which communicator a ring belongs to.
struct RecordedName {
  std::uint64_t identity = 0;  ///< The same on all ranks of the communicator, and of no other.
  std::string name = {};       ///< For people; the same on all ranks.
  int world_rank = -1;  ///< The rank in the communicator of which it was split off; -1: `rank`.
};

/// The memory of all rings of a process's runtime: an anonymous file. Thread-safe.
class TraceMemory {
 public:
  /// `capacity` is the number of operations that each ring keeps, rounded up to a power of two. If
  /// there is no anonymous file, the memory is private to the process, so that only dump() shows
  /// it.
  explicit TraceMemory(std::size_t capacity);
  ~TraceMemory();
  TraceMemory(const TraceMemory&) = delete;
  TraceMemory& operator=(const TraceMemory&) = delete;

  /// The head and the records of a communicator.
  struct Ring {
    RingHead* head = nullptr;
    Record* records = nullptr;
  };
  /// Returns a ring that is empty. A ring of a communicator that has ended is used again. Throws
  /// `unavailable` if there is no memory.
  Ring take(const RecordedName& name, int rank, int size);
  /// The communicator ends; its records stay until the ring is used again. Does nothing in a forked
  /// child.
  void give_back(const Ring& ring) noexcept;

  std::size_t capacity() const noexcept { return capacity_; }
  /// Whether other processes can read it.
  bool shown() const noexcept { return static_cast<bool>(file_); }
  int fd() const noexcept { return file_.get(); }

  /// Writes a copy to the file `path`, which appears when it is complete. Throws `unavailable` with
  /// the reason if that is not possible. Any thread may call it, while operations are recorded.
  void dump(const std::string& path) const;
  /// Writes a copy into the folder, under a name that says the rank, the machine and the process.
  /// Returns the path.
  std::string dump_into(const std::string& folder) const;

 private:
  void* map(std::size_t offset, std::size_t bytes, bool in_file) const;
  void describe_process() const;
  Ring ring_at(std::size_t extent) const noexcept;
  bool in_own_process() const noexcept;

  const std::size_t capacity_;
  Fd file_;
  TraceHead* head_ = nullptr;
  mutable sync::Mutex mutex_;
  std::vector<std::byte*> extents_;  // guarded by mutex_
  std::vector<bool> free_;           // guarded by mutex_; for each extent, whether it may be used
};

/// Records the operations of one communicator. One thread at a time (the owner of the
/// communicator's engine) uses it, except where a function says otherwise. No function waits,
/// allocates or makes a system call.
class Recorder {
 public:
  /// Records in memory of its own, which nobody else sees.
  Recorder();
  /// `memory` outlives it.
  Recorder(TraceMemory& memory, const RecordedName& name, int rank, int size);
  ~Recorder() { memory_->give_back(ring_); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Records that a collective is under way since the time `began`, in ticks.
  void begin(const StatusPage::Entry& call, std::uint64_t number, std::uint64_t began) noexcept {
    begin(call, number, began, Record::kUnderWay);
    end_run();
  }
  /// Records a collective that has ended so soon that it was not recorded before. `kind` is the
  /// same for calls of the same kind, until end_run().
  void begin_run(const void* kind, const StatusPage::Entry& call, std::uint64_t number,
                 std::uint64_t now) noexcept {
    begin(call, number, now, Record::kSoon);
    run_ = kind;
    more_ = 0;
  }
  /// Does the same for a call without a time, if it is the next one of the same kind: most calls of
  /// a loop are recorded by one comparison and one store, which take about a nanosecond. Returns
  /// false if begin_run() has to record it.
  bool repeats(const void* kind) noexcept {
    if (kind != run_ || more_ == Record::kMore) return false;
    at(collective_).more.store(++more_, std::memory_order_release);
    return true;
  }
  /// The next collective is not of the same kind.
  void end_run() noexcept { run_ = nullptr; }
  /// Returns whether collective `number` is the last one that was recorded.
  bool has(std::uint64_t number) const noexcept {
    const Record& record = at(collective_);
    return record.sequence.load(std::memory_order_relaxed) == collective_ + 1 &&
           record.number.load(std::memory_order_relaxed) + more_ == number;
  }
  /// The collective has ended now.
  void end() noexcept { end(collective_, Record::kGood); }
  /// The collective, if it is under way, has ended with an error.
  void fail(ErrorKind kind) noexcept {
    if (at(collective_).ended.load(std::memory_order_relaxed) == Record::kUnderWay)
      end(collective_, static_cast<std::uint32_t>(kind));
  }
  /// The program called the collective at the time `called`, in ticks.
  void queued(std::uint64_t called) noexcept { queued(collective_, called); }
  /// The collective waits for `peer` (-1: for no message of a peer) at `now`.
  void waits(int peer, TimePoint now) noexcept;

  /// The program is in a call whose ranks agree over the store, from now until leave(). The calling
  /// thread uses these three, whoever owns the engine.
  void enter(StoreCall call) noexcept;
  /// The call waits for a rank, for RingHead::kNewcomers, or for nobody who is known: -1.
  void store_call_waits(int peer) noexcept {
    ring_.head->store_call_waits_for.store(peer, std::memory_order_relaxed);
  }
  void leave() noexcept {
    ring_.head->store_call.store(StoreCall::none, std::memory_order_release);
  }

  /// Holds what a record says of a send or receive from its beginning on.
  struct TransferEntry {
    std::uint64_t kind;  ///< Record::kSend or Record::kReceive.
    DataType type;
    std::uint64_t count;
    int peer, tag;

    std::uint64_t kinds() const noexcept {
      return kind | static_cast<std::uint64_t>(type) << 8 |
             static_cast<std::uint64_t>(static_cast<std::uint32_t>(tag)) << 32;
    }
  };
  /// Records that a transfer has begun; returns the position of its record. `called` is when the
  /// program called it, in ticks; 0 if that is now.
  std::uint64_t begin_transfer(const TransferEntry& entry, std::uint64_t called) noexcept;
  /// Records a transfer that has ended well at `now`, in ticks, so soon that it was not recorded
  /// before.
  void transfer_soon(const TransferEntry& entry, std::uint64_t now) noexcept {
    soon_[entry.kind & 1] = write_transfer(entry, now, Record::kSoon);
  }
  /// Records one that was called long before, at `called`.
  void late_transfer_soon(const TransferEntry& entry, std::uint64_t called,
                          std::uint64_t now) noexcept {
    queued(write_transfer(entry, now, now), called);
  }
  /// Does the same as transfer_soon() without a time, if the last send, or the last receive, was
  /// such a one and like this one, and nothing was recorded since but transfers of the other
  /// direction, in turn with these. Returns false if transfer_soon() has to record it.
  bool transfer_repeats(const TransferEntry& entry) noexcept {
    const std::uint64_t position = soon_[entry.kind & 1];
    Record& record = at(position);
    constexpr auto relaxed = std::memory_order_relaxed;
    const std::uint32_t more = record.more.load(relaxed);
    if (position + 1 != position_ &&
        (position + 2 != position_ || soon_[~entry.kind & 1] != position + 1 ||
         at(position + 1).more.load(relaxed) < more))
      return false;
    if (record.sequence.load(relaxed) != position + 1 || more == Record::kMore ||
        record.kinds.load(relaxed) != entry.kinds() || record.count.load(relaxed) != entry.count ||
        record.peer.load(relaxed) != entry.peer)
      return false;
    record.more.store(more + 1, std::memory_order_release);
    ++transfers_[entry.kind & 1];
    end_run();
    return true;
  }
  /// The transfer at the position has ended; `outcome` is Record::kGood or Record::kAbandoned.
  void end(std::uint64_t position, std::uint32_t outcome) noexcept {
    Record& record = at(position);
    if (record.sequence.load(std::memory_order_relaxed) != position + 1) return;  // overwritten
    record.outcome.store(outcome, std::memory_order_relaxed);
    record.ended.store(ticks(), std::memory_order_release);
  }

  /// The communicator has failed. Called once, by any thread.
  void failed(ErrorKind kind, std::string_view why) noexcept;

 private:
  Record& at(std::uint64_t position) const noexcept { return ring_.records[position & mask_]; }

  /// Returns the record for the next operation, and its position. Records of operations that are
  /// under way are passed over, so that what a program hangs in is not overwritten by what goes on
  /// beside it.
  Record& next(std::uint64_t* position) noexcept {
    Record& record = at(position_);
    if (record.ended.load(std::memory_order_relaxed) == Record::kUnderWay &&
        record.sequence.load(std::memory_order_relaxed) != 0) [[unlikely]]
      pass_over();
    *position = position_++;
    return at(*position);
  }
  void pass_over() noexcept;

  void begin(const StatusPage::Entry& call, std::uint64_t number, std::uint64_t began,
             std::uint64_t ended) noexcept {
    Record& record = next(&collective_);
    const bool variable = call.root >> 32 != 0;
    more_ = 0;
    soon_ = {kNone, kNone};
    write(record, collective_, call.kinds | (variable ? Record::kVariable : 0), call.count, number,
          began, ended, static_cast<std::int32_t>(call.root));
  }
  static void write(Record& record, std::uint64_t position, std::uint64_t kinds,
                    std::uint64_t count, std::uint64_t number, std::uint64_t began,
                    std::uint64_t ended, std::int32_t peer) noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    record.sequence.store(0, relaxed);
    sync::fence(std::memory_order_release);
    record.kinds.store(kinds, relaxed);
    record.count.store(count, relaxed);
    record.number.store(number, relaxed);
    record.began.store(began, relaxed);
    record.ended.store(ended, relaxed);
    record.peer.store(peer, relaxed);
    record.more.store(0, relaxed);
    record.waits_for.store(-1, relaxed);
    record.outcome.store(Record::kGood, relaxed);
    record.sequence.store(position + 1, std::memory_order_release);
  }
  std::uint64_t write_transfer(const TransferEntry& entry, std::uint64_t began,
                               std::uint64_t ended) noexcept;
  void queued(std::uint64_t position, std::uint64_t called) noexcept;

  // No record has this position, nor is its sequence that of a record that is unused.
  static constexpr std::uint64_t kNone = ~std::uint64_t{0} - 1;

  std::unique_ptr<TraceMemory> own_;  // of a recorder that nobody sees
  TraceMemory* memory_;
  TraceMemory::Ring ring_;
  std::uint64_t mask_;
  std::uint64_t position_ = 0;        // of the next record
  std::uint64_t collective_ = kNone;  // the position of the last collective
  // These hold, at the last bit of Record::kSend and Record::kReceive, the number of transfers that
  // were recorded, and the position of the last one that ended soon.
  std::array<std::uint64_t, 2> transfers_{}, soon_{kNone, kNone};
  const void* run_ = nullptr;  // the kind of the calls of which the last collective is one
  std::uint32_t more_ = 0;     // the number of calls that followed in its record
  // Whom the last collective waits for, since when, and for whom it has waited longest.
  std::uint64_t waiting_ = ~std::uint64_t{0};  // the position of the collective that this is about
  int waits_for_ = -1, longest_for_ = -1;
  TimePoint waits_since_{};
  Nanoseconds longest_{0};
};

}  // namespace tutti
