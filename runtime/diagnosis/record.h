// The records of the flight recorder as they lie in memory that other processes can read, and in
// the files to which they are dumped.
//
// A trace begins with one TraceHead. After it, from kTraceHeadBytes on, there is one extent for
// each communicator of the process: a RingHead, and from kRingHeadBytes on a ring of Records.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "common/sync.h"

namespace tutti {

inline constexpr std::uint64_t kTraceMagic = 0x6563617274747574;  // "tuttrace" in memory
inline constexpr std::uint32_t kTraceVersion = 1;
inline constexpr std::size_t kTraceHeadBytes = 4096, kRingHeadBytes = 4096;
/// The name of the anonymous file, by which other processes find it in /proc/PID/fd.
inline constexpr const char* kTraceFileName = "trace.tutti";

/// The same moment on three clocks.
struct Moment {
  sync::Atomic<std::uint64_t> ticks;  ///< See common/ticks.h.
  sync::Atomic<std::int64_t>
      steady_ns;  ///< Of the steady clock, which the machine's processes share.
  sync::Atomic<std::int64_t> real_ns;  ///< Since 1970, by the machine's calendar.
};

/// The beginning of a trace. It is written before any other process can find the trace, except for
/// `dumped` and `extents`.
struct TraceHead {
  sync::Atomic<std::uint64_t> magic;
  sync::Atomic<std::uint32_t> version;
  sync::Atomic<std::uint32_t> capacity;  ///< The number of records of each ring: a power of two.
  sync::Atomic<std::int64_t> pid;        ///< As the process itself knows it.
  sync::Atomic<std::uint32_t> extents;   ///< The number of extents that have been used.
  Moment made;
  Moment dumped;                  ///< 0 in a trace that is not a dump.
  std::array<char, 128> machine;  ///< Equal for processes that have the same steady clock.
  std::array<char, 64> host;      ///< The host's name, which ends with a 0.
  std::array<char, 128> command;  ///< The beginning of the command line, which ends with a 0.
};
static_assert(sizeof(TraceHead) <= kTraceHeadBytes);

enum class RingState : std::uint32_t {
  unused,  ///< Or being written.
  open,
  failed,
  closed,
};

/// Names a call whose ranks agree over the store. It is no operation, and has no record.
enum class StoreCall : std::uint32_t { none, shrink, grow, agree };

/// Names the owner of a ring. The members before `state` are constant while `state` is not
/// `unused`.
struct RingHead {
  static constexpr std::size_t kFailureBytes = 1024;

  sync::Atomic<std::uint64_t> use;       ///< Counts the communicators that have had this ring.
  sync::Atomic<std::uint64_t> identity;  ///< The same on all ranks of a communicator, and no other.
  sync::Atomic<std::int32_t> rank, size;
  sync::Atomic<std::int32_t> world_rank;  ///< In the communicator of which it was split off.
  std::array<char, 124> name;             ///< For people; ends with a 0.
  sync::Atomic<RingState> state;
  sync::Atomic<std::uint32_t> failure_kind;
  /// Ends with a 0. It is written before `state` becomes `failed`, and constant from then on.
  std::array<char, kFailureBytes> failure;
  /// These say in which of these calls the program is now, since when, in ticks, and for which rank
  /// it waits: -1 if that is not known, and kNewcomers for processes that are no ranks yet.
  sync::Atomic<StoreCall> store_call;
  sync::Atomic<std::int32_t> store_call_waits_for;
  sync::Atomic<std::uint64_t> store_call_began;

  static constexpr std::int32_t kNewcomers = -2;
};
static_assert(sizeof(RingHead) <= kRingHeadBytes);

/// One operation. The owner of the communicator's engine writes it, and any thread or process reads
/// it at any time: the members up to `peer` are valid if `sequence` reads the same before and
/// after them, and the others change on their own while the operation is under way.
struct Record {
  /// The position of the record among all of its ring, plus 1; 0 while it is unused or written.
  sync::Atomic<std::uint64_t> sequence;
  /// The word StatusPage::Entry::kinds. For a transfer `what` is kSend or kReceive, and the tag
  /// takes the place of the algorithm.
  sync::Atomic<std::uint64_t> kinds;
  sync::Atomic<std::uint64_t> count;
  sync::Atomic<std::uint64_t> number;  ///< Of the collective, the send or the receive, from 0.
  sync::Atomic<std::uint64_t> began;   ///< In ticks.
  sync::Atomic<std::uint64_t> ended;   ///< kUnderWay, kSoon, or in ticks.
  sync::Atomic<std::int32_t> peer;     ///< Or the root.
  /// Where `ended` is kSoon: how many calls of the same kind followed it under the next numbers,
  /// each of which ended as soon; their times are not recorded. Otherwise: how long before `began`
  /// the program called, in units of kQueuedTicks.
  sync::Atomic<std::uint32_t> more;
  /// The rank for which it waits, or once it has ended the one for which it waited longest; -1 if
  /// that was never asked.
  sync::Atomic<std::int32_t> waits_for;
  sync::Atomic<std::uint32_t> outcome;  ///< kGood, kAbandoned, or the number of the ErrorKind.

  static constexpr std::uint64_t kUnderWay = 0;
  /// The call ended so soon that the clock was read at its end alone: after kSoonPolls polls at
  /// most, which take about two microseconds. Calls of more elements than kSoonCount are never
  /// such.
  static constexpr std::uint64_t kSoon = 1;
  static constexpr int kSoonPolls = 128;
  static constexpr std::uint64_t kSoonCount = 512;
  /// The most calls that follow in one record; the clock is read again after so many.
  static constexpr std::uint32_t kMore = 63;
  static constexpr std::uint64_t kQueuedTicks = 1024;
  static constexpr std::uint32_t kGood = 0, kAbandoned = 255;
  static constexpr std::uint64_t kSend = 254, kReceive = 255;
  /// Set in `kinds` where the blocks of the ranks have different lengths.
  static constexpr std::uint64_t kVariable = std::uint64_t{1} << 31;
};
static_assert(sizeof(Record) == 64 && kRingHeadBytes % sizeof(Record) == 0);
static_assert(sync::Atomic<std::uint64_t>::is_always_lock_free, "processes share it");

constexpr std::size_t extent_bytes(std::size_t capacity) noexcept {
  return kRingHeadBytes + capacity * sizeof(Record);
}
constexpr std::size_t extent_offset(std::size_t extent, std::size_t capacity) noexcept {
  return kTraceHeadBytes + extent * extent_bytes(capacity);
}

/// A record that was read, with all members of one operation.
struct ReadRecord {
  std::uint64_t sequence = 0, kinds = 0, count = 0, number = 0, began = 0, ended = 0;
  std::int32_t peer = 0, waits_for = -1;
  std::uint32_t more = 0, outcome = 0;
};

/// Reads a record; returns false if it is unused or is being overwritten. Any process may call it.
inline bool read(const Record& record, ReadRecord& into) noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  into.sequence = record.sequence.load(std::memory_order_acquire);
  if (into.sequence == 0) return false;
  into.kinds = record.kinds.load(relaxed);
  into.count = record.count.load(relaxed);
  into.number = record.number.load(relaxed);
  into.began = record.began.load(relaxed);
  into.ended = record.ended.load(relaxed);
  into.peer = record.peer.load(relaxed);
  into.more = record.more.load(relaxed);
  into.waits_for = record.waits_for.load(relaxed);
  into.outcome = record.outcome.load(relaxed);
  sync::fence(std::memory_order_acquire);
  return record.sequence.load(relaxed) == into.sequence;
}

}  // namespace tutti
