// The engine that moves bytes with the cores of this machine: the caller's thread advances the
// lanes of a program, and worker threads advance its other stripes.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/sync.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/execution.h"
#include "runtime/engine/worker_pool.h"

namespace tutti {

class HostEngine final : public Engine {
 public:
  HostEngine(Transport& transport, Recorder& recorder, std::function<void()> worker_done);

  std::shared_ptr<BoundProgram> bind(std::vector<Program> stripes) override;
  bool start(BoundProgram& bound, CallBuffers& buffers, bool in_threads, int attempts) override;
  bool advance(int attempts) override;
  void stop() noexcept override { workers_.stop(); }
  void forget_threads() noexcept override { workers_.forget(); }
  const CallSignature& call() const override { return execution_.call(); }
  const UserReduction* reduction() const override { return execution_.reduction(); }
  int awaited(int above) const override { return execution_.awaited(above); }
  std::size_t memory_bytes() const noexcept override {
    return scratch_bytes_.load(std::memory_order_relaxed);
  }

 private:
  std::byte* scratch(const Program& program) {
    const std::size_t bytes = program.scratch_bytes * program.stripe.of;
    return bytes <= memory_bytes() ? scratch_.get() : grow_scratch(bytes);
  }
  std::byte* grow_scratch(std::size_t bytes);
  // Advances the call once, and returns whether it is done.
  bool attempt() {
    if (!execution_.advance() || (workers_.busy() && !workers_.advance()) || !all_left())
      return false;
    complete();
    return true;
  }
  bool all_left() { return leaves_at_once_ || transport_.all_left(); }

  Transport& transport_;
  const bool leaves_at_once_;  // whether posted messages leave at once; see Transport::all_left()
  Execution execution_;
  WorkerPool workers_;  // moves the other stripes of the call that execution_ runs
  // The scratch of one execution, aligned to 64 bytes, that of its stripes side by side. It is kept
  // from one call to the next.
  std::unique_ptr<std::byte, void (*)(void*)> scratch_{nullptr, nullptr};
  sync::Atomic<std::size_t> scratch_bytes_{0};
};

}  // namespace tutti
