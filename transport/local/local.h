// Ranks of one process: threads, or thousands of ranks that one thread drives in a simulation.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "transport/channel.h"
#include "transport/registry.h"
#include "transport/ring.h"

namespace tutti::local {

/// Where the ranks of one communicator meet: their status pages, bells and rings. Thread-safe; the
/// lock is taken to join and to make a ring, never to move a message. Lives as long as any of its
/// ranks, so what a closed rank has sent can still be received.
class Hub {
 public:
  explicit Hub(int size);
  /// Of some of the ranks of `first`.
  Hub(const Hub& first, const Subset& subset);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  int size() const noexcept { return static_cast<int>(ranks_.size()); }

  /// A rank is there. Keeps its bell, which its peers may ring after it has gone.
  void join(const TransportContext& context);

  /// As join(), for a rank of a subset.
  void join(int rank);

  /// The hub of a subset of these ranks, made by the first member that asks.
  static std::shared_ptr<Hub> of_subset(const std::shared_ptr<Hub>& first, const Subset& subset);

  /// Returns when all ranks have joined; throws `timeout` naming those that have not.
  void wait_for_all(int rank, TimePoint deadline);

  StatusPage& status_page(int rank) noexcept { return *ranks_[rank].status_page; }
  Segments& segments(int rank) noexcept { return *ranks_[rank].segments; }

  /// How `from` wakes `to`. Both have joined.
  PeerBell bell(int from, int to) const noexcept;

  /// The ring `number` from one rank to another, made when either first asks.
  RingMemory* ring(int from, int to, int number, std::size_t data_bytes);

 private:
  struct Rank {
    std::unique_ptr<StatusPage> status_page = std::make_unique<StatusPage>();
    std::unique_ptr<Segments> segments = std::make_unique<Segments>();  // that it lends
    bool joined = false;  // guarded by mutex_; the rest is written before it and then constant
    std::shared_ptr<const Doorbell> bell;  // null: never sleeps
  };
  struct FreeRing {
    void operator()(RingMemory* memory) const noexcept;
  };

  void seat(Rank& rank);              // with mutex_ held
  std::string missing_ranks() const;  // with mutex_ held

  std::vector<Rank> ranks_;
  std::mutex mutex_;
  std::condition_variable all_joined_;
  int joined_ = 0;  // guarded by mutex_
  std::map<std::pair<int, std::uint32_t>, std::weak_ptr<Hub>>
      subsets_;  // by the first member and its number for it; guarded by mutex_
  std::map<std::tuple<int, int, int>, std::unique_ptr<RingMemory, FreeRing>>
      rings_;  // by from, to, number; guarded by mutex_
};

TransportEntry entry();

}  // namespace tutti::local
