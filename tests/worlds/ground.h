// A world stands on this: a clock that makes waiting short, one runtime without threads, and the
// transports of all ranks.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../transport/fake_verbs.h"
#include "common/clock.h"
#include "common/random.h"
#include "plan.h"
#include "rendezvous/store/memory_store.h"
#include "runtime/communicator_parts.h"
#include "transport/context.h"

namespace tutti::worlds {

/// A clock that advances when it is read: by a microsecond, and by twice as much after each
/// `patience` readings in which nothing has happened, so that a deadline of seconds is soon there.
/// Used in one thread.
class WorldClock final : public Clock {
 public:
  explicit WorldClock(std::uint64_t patience) : patience_(patience) {}
  TimePoint now() const override;
  /// Something has happened.
  void moved() noexcept { idle_ = 0; }
  void advance(Nanoseconds by) noexcept { now_ += by; }
  /// Returns the time without advancing it.
  TimePoint last() const noexcept { return now_; }

 private:
  const std::uint64_t patience_;
  mutable std::uint64_t idle_ = 0;
  mutable TimePoint now_{};
};

/// The clock of transports over sockets. It tells real time while threads connect them. From then
/// on it advances with the world's clock, and by itself when it is read, since a transport that
/// ends waits for this clock alone, until the last words of peers that have ended must have come.
class SocketClock final : public Clock {
 public:
  explicit SocketClock(const WorldClock& world) : world_(world) {}
  TimePoint now() const override {
    if (!ahead_) return SteadyClock().now();
    *ahead_ += reading_;
    return world_.last() + *ahead_;
  }
  void hurry() { reading_ = std::chrono::milliseconds(2); }
  void follow_world() { ahead_ = SteadyClock().now() - world_.last(); }

 private:
  const WorldClock& world_;
  Nanoseconds reading_{200};
  mutable std::optional<Nanoseconds> ahead_;  // of the world's clock
};

class Ground {
 public:
  explicit Ground(const Plan& plan);
  ~Ground() { runtime_->step(); }  // deletes communicators that were destroyed in callbacks
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;

  /// Returns the parts of new communicators of all ranks, connected.
  std::vector<CommunicatorParts> base(int number);
  /// Returns those of a communicator of `size` ranks over the local transport without faults.
  std::vector<CommunicatorParts> sound(int size, const std::string& name);

  /// All communicators are going to end: lets the time of transports pass quickly.
  void hurry() {
    for (SocketClock& clock : socket_clocks_) clock.hurry();
  }
  /// Lets happen what the plan says of the network by now.
  void advance_network();

  Runtime& runtime() { return *runtime_; }
  WorldClock& clock() { return *clock_; }
  const std::shared_ptr<MemoryStore>& store() { return store_; }
  std::uint64_t draw(std::uint64_t below) { return random_.next() % below; }

 private:
  TransportContext context(int rank, int size, const Clock& clock) const;
  CommunicatorParts parts(std::unique_ptr<Transport> transport, int rank, int size,
                          std::string name);
  std::vector<std::unique_ptr<Transport>> transports(int number);

  const Plan& plan_;
  SeededRandom random_;
  qp::fake::Network network_;
  std::vector<NetworkEvent> network_events_;  // that are to come
  WorldClock* clock_;                         // The runtime owns it.
  std::shared_ptr<Runtime> runtime_;
  std::deque<SocketClock> socket_clocks_;  // one of each base
  mutable SystemRandom identities_;
  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  const std::shared_ptr<PriceList> prices_;
};

}  // namespace tutti::worlds
