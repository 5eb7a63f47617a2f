// Implements what the groups of all transports over connections have in common. A group is one
// communicator's part of one connection.
#pragma once

#include <cstddef>
#include <optional>

#include "common/clock.h"
#include "transport/page_bytes.h"
#include "transport/status_page.h"

namespace tutti::mesh {

/// Holds the members that the groups of one communicator share. This record outlives the groups.
struct GroupContext {
  std::size_t max_message_bytes = 0;
  StatusPage* status_page = nullptr;  ///< The status page of this rank.
  /// The doorbell of the threads that sleep in this communicator, or -1 where none ever does.
  int doorbell_fd = -1;

  /// Wakes the threads of the communicator that sleep, since what woke the caller may be for them.
  void wake_sleepers() const noexcept;
};

/// Holds a peer's status page in a group, which the peer sends when it is requested, and by itself
/// when its state changes. It is protected by the connection's lock, except that any thread may
/// read page().
class PeerPage {
 public:
  const StatusPage& page() const noexcept { return page_; }
  /// Returns whether the page has ever been received.
  bool received() const noexcept { return received_at_.has_value(); }
  /// Stores the page that has arrived.
  void receive(const StatusPageBytes& bytes, TimePoint now);

  /// Return the page, or null where it was received too long ago: more than 2 ms for fresh(), 1.5 s
  /// for recent(). The last page of a peer that has failed or closed never becomes too old, nor
  /// does one behind which no other can come because the connection has `ended`.
  const StatusPage* fresh(TimePoint now, bool ended) const;
  const StatusPage* recent(TimePoint now, bool ended) const;

  /// Records that the page is requested. Returns false where a request is under way already.
  bool request() noexcept;

 private:
  bool received_within(Nanoseconds age, TimePoint now, bool ended) const;

  StatusPage page_{};
  std::optional<TimePoint> received_at_;
  bool requested_ = false;
};

}  // namespace tutti::mesh
