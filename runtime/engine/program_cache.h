// A bounded cache of programs, whose keys have everything on which a program depends.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "common/capabilities.h"
#include "runtime/engine/engine.h"
#include "runtime/own_algorithms.h"

namespace tutti {

/// Holds everything on which a program depends, apart from the communicator.
struct CallKey {
  CallSignature signature;
  std::size_t message_bytes = 0;
  bool zero_copy = false;                ///< Whether messages may lie in the call's buffers.
  int stripes = 1;                       ///< All ranks agree on it.
  MemoryKind memory = MemoryKind::host;  ///< Of the call's buffers.

  bool operator==(const CallKey&) const = default;
};

/// A cache of bound programs, and the scratch memory that they share. For one thread at a time (the
/// owner of the engine), except where a function says otherwise.
class ProgramCache {
 public:
  static constexpr std::size_t kMost = 256;

  /// `request` has this communicator's ranks and groups; its collective does not matter. `engine`
  /// and `own` outlive the cache.
  ProgramCache(Engine& engine, const OwnAlgorithms& own, PlanRequest request)
      : engine_(engine), own_(own), request_(std::move(request)) {}

  /// Returns the program for `key`, which is planned, compiled and bound if it is not cached.
  /// Throws what the creation of channels throws (`unavailable`).
  std::shared_ptr<BoundProgram> get(const CallKey& key);
  /// Returns this rank's schedule of a call. Any thread may call it.
  Schedule plan(const CallSignature& call) const;

 private:
  struct Entry {
    std::shared_ptr<BoundProgram> bound;
    /// The value of uses_ at its last use, which decides which entry is dropped.
    std::uint64_t used = 0;
  };
  struct Hash {
    std::size_t operator()(const CallKey& key) const noexcept {
      return fingerprint(key.signature) ^ mix(key.message_bytes);
    }
  };

  void drop_least_recent();

  Engine& engine_;
  const OwnAlgorithms& own_;
  const PlanRequest request_;
  std::unordered_map<CallKey, Entry, Hash> entries_;
  std::uint64_t uses_ = 0;
};

}  // namespace tutti
