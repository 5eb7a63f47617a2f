// A transport that wraps another one and adds the faults of a network, drawn from a seed, so that
// programs and tests can see what they do when a connection is slow, breaks or damages data.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "transport/channel.h"

namespace tutti::faulty {

/// A fault that begins at a time, at one connection or at all connections of a rank. Ranks are
/// numbered as in the communicator that made the connections, and those that are split off it
/// suffer from the same fault.
struct Event {
  enum class Kind {
    cut,      ///< From then on nothing arrives; both ends see each other `lost` after `lasts`.
    silence,  ///< Nothing arrives for `lasts`, then everything does.
    damage,   ///< A checksum finds bytes that have changed: `peer` sees `rank` as `corrupt`.
    flip,     ///< One bit of the next message from `rank` to `peer` changes, and nobody notices.
  };
  static constexpr int kAllPeers = -1;  ///< As `peer`: the fault hits all connections of `rank`.
  static constexpr Nanoseconds kForever = Nanoseconds::max();

  Kind kind = Kind::cut;
  TimePoint at{};
  int rank = 0;
  int peer = kAllPeers;
  Nanoseconds lasts{};  ///< kForever: a cut is never noticed, a silence never ends.
};

/// Says what goes wrong. Chances are in percent. Without any, the wrapped transport is not changed.
struct Faults {
  std::uint64_t seed = 1;
  /// The chance that a message is delayed, by at most `longest_delay`. The messages of a channel
  /// keep their order; those of different channels overtake each other.
  int delayed_percent = 0;
  Nanoseconds longest_delay{};
  /// The chance that a channel says for at most `longest_full` that its window is full.
  int full_percent = 0;
  Nanoseconds longest_full{};
  /// Copies of peers' status pages are at most this old, and a wake() is at most this late. No more
  /// than a few milliseconds: see Transport::status_page().
  Nanoseconds oldest_news{};
  std::vector<Event> events;
};

/// Wraps the transport of `rank` among `size` ranks, before or after it is connected. All ranks are
/// given the same events. Its channels are never rings, and send nothing zero-copy where those of
/// `inner` are rings. The end of a delay wakes no thread that sleeps: it is for runtimes without
/// threads and for ranks that poll. `clock` outlives the transport. Thread-safety is that of
/// Transport.
std::unique_ptr<Transport> make(std::unique_ptr<Transport> inner, int rank, int size,
                                const Clock& clock, const Faults& faults);

}  // namespace tutti::faulty
