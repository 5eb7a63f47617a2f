// The transport between ranks of one process: threads, or thousands of ranks that one thread drives
// in a simulation.
#pragma once

#include <cassert>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/sync.h"
#include "transport/channel.h"
#include "transport/registry.h"
#include "transport/ring/ring.h"

namespace tutti::local {

/// Holds the status pages, doorbells and rings of the ranks of one communicator. Thread-safe; the
/// lock is taken to join and to make a ring, but never to move a message. A hub lives as long as
/// any of its ranks, so that what a closed rank has sent can still be received.
class Hub {
 public:
  explicit Hub(int size);
  /// Makes the hub of some of the ranks of `first`.
  Hub(const Hub& first, const Subset& subset);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  int size() const noexcept { return static_cast<int>(ranks_.size()); }

  /// Records that a rank is there. Keeps its doorbell, which its peers may ring after the rank has
  /// gone.
  void join(const TransportContext& context);

  /// Does the same for a rank of a subset. The last rank to join wakes the threads of the others.
  void join(int rank);
  /// Returns the ranks that have not joined.
  std::vector<int> missing();

  /// Returns the hub of a subset of these ranks, which the first member that calls this makes.
  static std::shared_ptr<Hub> of_subset(const std::shared_ptr<Hub>& first, const Subset& subset);

  /// Returns when all ranks have joined; throws `timeout` naming those that have not.
  void wait_for_all(int rank, TimePoint deadline);

  StatusPage& status_page(int rank) noexcept {
    assert(rank >= 0 && rank < size());
    return *ranks_[rank].status_page;
  }
  Segments& segments(int rank) noexcept {
    assert(rank >= 0 && rank < size());
    return *ranks_[rank].segments;
  }

  /// Returns the doorbell by which `from` wakes `to`. Both have joined.
  PeerBell bell(int from, int to) const noexcept;

  /// Returns ring `number` from one rank to another, which the first call by either rank makes.
  RingMemory* ring(int from, int to, int number, std::size_t data_bytes);

 private:
  struct Rank {
    std::unique_ptr<StatusPage> status_page = std::make_unique<StatusPage>();
    // The memory that this rank has registered.
    std::unique_ptr<Segments> segments = std::make_unique<Segments>();
    // Guarded by mutex_. The other members are written before it and constant from then on.
    bool joined = false;
    std::shared_ptr<const Doorbell> bell;  // null if the rank never sleeps
  };
  struct FreeRing {
    void operator()(RingMemory* memory) const noexcept;
  };

  void seat(Rank& rank);                   // with mutex_ held
  std::vector<int> missing_ranks() const;  // with mutex_ held

  std::vector<Rank> ranks_;
  sync::Mutex mutex_;
  sync::Condition all_joined_;
  int joined_ = 0;  // guarded by mutex_
  // Known by the first member and the number that it has given the subset. Guarded by mutex_.
  std::map<std::pair<int, std::uint32_t>, std::weak_ptr<Hub>> subsets_;
  // Indexed by from, to and number. Guarded by mutex_.
  std::map<std::tuple<int, int, int>, std::unique_ptr<RingMemory, FreeRing>> rings_;
};

TransportEntry entry();

}  // namespace tutti::local
