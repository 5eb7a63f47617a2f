// Runs whole communicators of several ranks in one thread, over the local transport, in an order
// drawn from a seed. Their runtime has no thread, and its clock advances only when it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <tutti/tutti.hpp>

#include "common/clock.h"
#include "common/random.h"
#include "rendezvous/store/memory_store.h"
#include "runtime/communicator_impl.h"
#include "transport/local/local.h"

namespace tutti::test {

/// A clock that advances by 10 microseconds each time that it is read. It is used in one thread
/// only.
class TickingClock final : public Clock {
 public:
  TimePoint now() const override { return now_ += std::chrono::microseconds(10); }
  void advance(Nanoseconds by) { now_ += by; }

 private:
  mutable TimePoint now_{};
};

/// Used in one thread only. The communicators must be destroyed before it is.
class OneThread {
 public:
  OneThread(std::uint64_t seed, Config config);
  ~OneThread() { runtime_->step(); }  // deletes communicators that were destroyed in callbacks
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  /// Returns new communicators of `size` ranks, indexed by rank, which can be shrunk.
  std::vector<std::optional<Communicator>> communicators(int size);
  /// Returns the parts of one of them, which are to be connected when all ranks have theirs.
  CommunicatorParts parts(std::shared_ptr<local::Hub> hub, int rank);

  Runtime& runtime() { return *runtime_; }
  Random& random() { return random_; }
  std::size_t draw(std::size_t below) { return random_.next() % below; }
  TickingClock& clock() { return *clock_; }
  const std::shared_ptr<MemoryStore>& store() { return store_; }

  /// Advances a communicator or calls one of `others`, as the seed decides, until `done` returns
  /// true. Returns false if that takes too long.
  bool drive(const std::function<bool()>& done,
             const std::vector<std::function<void()>>& others = {});

 private:
  SeededRandom random_;
  TickingClock* clock_;  // The runtime owns it.
  std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
};

}  // namespace tutti::test
