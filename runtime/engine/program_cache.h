// Programs kept by everything that they depend on, bounded.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "common/sync.h"
#include "runtime/engine/execution.h"
#include "runtime/own_algorithms.h"

namespace tutti {

/// What a program depends on, beside the communicator. The algorithm and the message size follow
/// from it.
struct CallKey {
  CallSignature signature;
  std::size_t message_bytes = 0;
  bool lends = false;  ///< This rank lends memory, perhaps the call's.
  int stripes = 1;     ///< Agreed.

  bool operator==(const CallKey&) const = default;
};

/// Own thread only (the engine's owner).
class ProgramCache {
 public:
  static constexpr std::size_t kMost = 256;

  /// `request`: with this communicator's ranks and groups, for any collective.
  ProgramCache(Transport& transport, const OwnAlgorithms& own, PlanRequest request)
      : transport_(transport), own_(own), request_(std::move(request)) {}

  /// The program for `key`, planned, compiled and bound if it is not here. Throws what channels
  /// throw when they are made (`unavailable`).
  std::shared_ptr<BoundProgram> get(const CallKey& key);

  /// Scratch for one execution of `program`, 64-byte aligned, that of its stripes side by side.
  std::byte* scratch(const BoundProgram& bound) {
    const std::size_t bytes = bound.program.scratch_bytes * bound.program.stripe.of;
    return bytes <= scratch_bytes() ? scratch_.get() : grow(bytes);
  }
  /// Held from execution to execution. Any thread.
  std::size_t scratch_bytes() const noexcept {
    return scratch_bytes_.load(std::memory_order_relaxed);
  }

 private:
  struct Entry {
    std::shared_ptr<BoundProgram> bound;
    std::uint64_t used = 0;  ///< Clock of uses, for choosing whom to drop.
  };
  struct Hash {
    std::size_t operator()(const CallKey& key) const noexcept {
      return fingerprint(key.signature) ^ mix(key.message_bytes);
    }
  };

  void drop_least_recent();
  std::byte* grow(std::size_t scratch_bytes);

  Schedule plan(const CallSignature& call) const;

  Transport& transport_;
  const OwnAlgorithms& own_;
  const PlanRequest request_;
  std::unordered_map<CallKey, Entry, Hash> entries_;
  std::uint64_t uses_ = 0;
  std::unique_ptr<std::byte, void (*)(void*)> scratch_{nullptr, nullptr};
  sync::Atomic<std::size_t> scratch_bytes_{0};
};

}  // namespace tutti
