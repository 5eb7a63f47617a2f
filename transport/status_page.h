// What a rank shows its peers beside messages: its last calls, how far it has come, and whether it
// has failed. In memory that peers can read, so that a frozen or dead rank can still be asked.
#pragma once

#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include <tutti/error.hpp>

#include "common/sync.h"
#include "common/wire.h"

namespace tutti {

inline constexpr std::size_t kCacheLine = 64;

enum class StatusPageState : std::uint32_t { open, failed, closed };

/// One owner writes, any peer reads at any time. All fields are atomics on their own; a record is
/// valid when its number reads the same before and after the rest (a sequence lock with the number
/// as the sequence).
struct StatusPage {
  static constexpr std::size_t kCalls = 64;
  static constexpr std::size_t kFailureBytes = 1024;

  struct Call {
    sync::Atomic<std::uint64_t> number_plus_one;  ///< 0: never written, or being written.
    sync::Atomic<std::uint64_t>
        kinds;  ///< what | type << 8 | op << 16 | flags << 24 | algorithm << 32
    sync::Atomic<std::uint64_t> root;  ///< root | lengths << 32
    sync::Atomic<std::uint64_t> count;
    sync::Atomic<std::uint64_t> reduction;  ///< Where the flags have kOwnReduction.
  };
  static constexpr std::uint64_t kAccumulatesF32 = 1, kOwnReduction = 2, kReproducible = 4;

  alignas(kCacheLine) sync::Atomic<std::uint32_t> sleepers;  ///< Threads of the owner asleep: peers
                                                             ///< ring after a post.
  sync::Atomic<StatusPageState> state;
  sync::Atomic<std::uint32_t> failure_kind;
  sync::Atomic<std::uint32_t> failure_bytes;
  alignas(kCacheLine) sync::Atomic<std::uint64_t> entered;  ///< Operations entered.
  sync::Atomic<std::uint64_t> completed;                    ///< Operations completed.
  sync::Atomic<std::uint64_t> reported;  ///< Of a stall: up to which operation, counted from 1.
  sync::Atomic<std::uint64_t> waits;     ///< For which rank for long, as waiting() has it; 0: none.
  alignas(kCacheLine) std::array<Call, kCalls> calls;
  std::array<char, kFailureBytes>
      failure;  ///< Written before `state` becomes failed, then constant.

  /// Owner: writes down call `number` before its first message is posted.
  void record(std::uint64_t number, const CallSignature& call) noexcept {
    Call& c = calls[number % kCalls];
    c.number_plus_one.store(0, std::memory_order_relaxed);
    sync::compiler_fence(std::memory_order_seq_cst);
    c.kinds.store(static_cast<std::uint64_t>(call.what) |
                      static_cast<std::uint64_t>(call.type) << 8 |
                      static_cast<std::uint64_t>(call.op) << 16 |
                      static_cast<std::uint64_t>(call.accumulates_f32) * (kAccumulatesF32 << 24) |
                      static_cast<std::uint64_t>(call.reduction != 0) * (kOwnReduction << 24) |
                      static_cast<std::uint64_t>(call.reproducible) * (kReproducible << 24) |
                      static_cast<std::uint64_t>(call.algorithm) << 32,
                  std::memory_order_release);
    if (call.reduction != 0) c.reduction.store(call.reduction, std::memory_order_release);
    c.root.store(static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) |
                     static_cast<std::uint64_t>(call.lengths) << 32,
                 std::memory_order_release);
    c.count.store(call.count, std::memory_order_release);
    c.number_plus_one.store(number + 1, std::memory_order_release);
    entered.store(number + 1, std::memory_order_release);
  }

  /// Anyone: call `number`, if it is among the last kCalls and not being overwritten.
  std::optional<CallSignature> call(std::uint64_t number) const noexcept {
    const Call& c = calls[number % kCalls];
    if (c.number_plus_one.load(std::memory_order_acquire) != number + 1) return std::nullopt;
    const std::uint64_t kinds = c.kinds.load(std::memory_order_acquire);
    CallSignature found;
    found.what = static_cast<Collective>(kinds & 0xff);
    found.type = static_cast<DataType>(kinds >> 8 & 0xff);
    found.op = static_cast<Op>(kinds >> 16 & 0xff);
    found.accumulates_f32 = (kinds >> 24 & kAccumulatesF32) != 0;
    found.reproducible = (kinds >> 24 & kReproducible) != 0;
    if ((kinds >> 24 & kOwnReduction) != 0)
      found.reduction = c.reduction.load(std::memory_order_acquire);
    found.algorithm = static_cast<std::uint32_t>(kinds >> 32);
    const std::uint64_t root = c.root.load(std::memory_order_acquire);
    found.root = static_cast<std::int32_t>(root & 0xffffffff);
    found.lengths = static_cast<std::uint32_t>(root >> 32);
    found.count = c.count.load(std::memory_order_acquire);
    if (c.number_plus_one.load(std::memory_order_acquire) != number + 1) return std::nullopt;
    return found;
  }

  /// That operation `number` waits for `peer`.
  static constexpr std::uint64_t waiting(std::uint64_t number, int peer) noexcept {
    return number << 32 | static_cast<std::uint32_t>(peer + 1);
  }
  /// Anyone: for whom operation `number` waits; -1: that is not known.
  int waits_for(std::uint64_t number) const noexcept {
    const std::uint64_t said = waits.load(std::memory_order_acquire);
    return said >> 32 == (number & 0xffffffff) ? static_cast<int>(said & 0xffffffff) - 1 : -1;
  }

  /// Owner, once: says that this rank has failed and why. Peers that wait for it pass the error on.
  void fail(ErrorKind kind, std::string_view why) noexcept {
    const std::size_t bytes = why.size() < kFailureBytes ? why.size() : kFailureBytes;
    std::memcpy(failure.data(), why.data(), bytes);
    failure_bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
    failure_kind.store(static_cast<std::uint32_t>(kind), std::memory_order_relaxed);
    state.store(StatusPageState::failed, std::memory_order_release);
  }

  /// Owner: says goodbye; false when that has been said before. What has failed stays failed, so
  /// that peers can still ask why.
  bool close() noexcept {
    if (state.load(std::memory_order_relaxed) != StatusPageState::open) return false;
    state.store(StatusPageState::closed, std::memory_order_release);
    return true;
  }

  /// Anyone, once `state` reads failed (with acquire).
  std::string_view failure_text() const noexcept {
    const std::size_t bytes = failure_bytes.load(std::memory_order_relaxed);
    return {failure.data(), bytes < kFailureBytes ? bytes : kFailureBytes};
  }
};

}  // namespace tutti
