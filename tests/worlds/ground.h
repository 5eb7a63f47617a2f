// A world stands on this: a clock that makes waiting short, one runtime without threads, and the
// transports of all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

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

 private:
  const std::uint64_t patience_;
  mutable std::uint64_t idle_ = 0;
  mutable TimePoint now_{};
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

  Runtime& runtime() { return *runtime_; }
  WorldClock& clock() { return *clock_; }
  const std::shared_ptr<MemoryStore>& store() { return store_; }
  std::uint64_t draw(std::uint64_t below) { return random_.next() % below; }

 private:
  TransportContext context(int rank, int size) const;
  CommunicatorParts parts(std::unique_ptr<Transport> transport, int rank, int size,
                          std::string name);
  std::vector<std::unique_ptr<Transport>> transports(int number);

  const Plan& plan_;
  SeededRandom random_;
  WorldClock* clock_;  // The runtime owns it.
  std::shared_ptr<Runtime> runtime_;
  SteadyClock steady_;  // of transports over sockets, which are connected in threads
  mutable SystemRandom identities_;
  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  const std::shared_ptr<PriceList> prices_;
};

}  // namespace tutti::worlds
