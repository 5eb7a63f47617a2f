// The status page: what a rank shows its peers beside messages. It holds the rank's latest calls,
// how far the rank has come, and whether it has failed. It lies in memory that peers can read, so
// that they can look at a rank that is frozen or dead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include <tutti/error.hpp>

#include "common/sync.h"
#include "common/wire.h"
#include "transport/sleepers.h"

namespace tutti {

inline constexpr std::size_t kCacheLine = 64;

enum class StatusPageState : std::uint32_t { open, failed, closed };

/// The status page of one rank. The owner writes it, and any peer may read it at any time. Every
/// field but the failure's text is an atomic of its own; the record of a call is valid when its
/// number reads the same before and after the rest (a sequence lock with the number as the
/// sequence).
struct StatusPage {
  static constexpr std::size_t kCalls = 64;
  static constexpr std::size_t kFailureBytes = 1024;

  struct Call {
    /// 0 while the record is unused or being written.
    sync::Atomic<std::uint64_t> number_plus_one;
    /// Holds what | type << 8 | op << 16 | flags << 24 | algorithm << 32.
    sync::Atomic<std::uint64_t> kinds;
    sync::Atomic<std::uint64_t> root;  ///< Holds root | lengths << 32.
    sync::Atomic<std::uint64_t> count;
    sync::Atomic<std::uint64_t> reduction;  ///< Valid where the flags have kOwnReduction.
  };
  static constexpr std::uint64_t kAccumulatesF32 = 1, kOwnReduction = 2, kReproducible = 4;

  /// The owner's threads that sleep. Where there are any, peers ring the doorbell after they post.
  alignas(kCacheLine) Sleepers sleepers;
  sync::Atomic<StatusPageState> state;
  sync::Atomic<std::uint32_t> failure_kind;
  sync::Atomic<std::uint32_t> failure_bytes;
  alignas(kCacheLine) sync::Atomic<std::uint64_t> entered;  ///< The number of operations entered.
  sync::Atomic<std::uint64_t> completed;                    ///< The number of operations completed.
  /// The last operation for which a stall has been reported, counted from 1.
  sync::Atomic<std::uint64_t> reported;
  /// The rank for which an operation has waited for long, in the form of waiting(); 0 if none.
  sync::Atomic<std::uint64_t> waits;
  alignas(kCacheLine) std::array<Call, kCalls> calls;
  /// The failure's text. It is written before `state` becomes failed and constant from then on.
  std::array<char, kFailureBytes> failure;

  /// A call in the words in which a page records it. They are made once for all calls of a program.
  struct Entry {
    std::uint64_t kinds, root, count, reduction;
  };
  static constexpr Entry entry_of(const CallSignature& call) noexcept {
    return {static_cast<std::uint64_t>(call.what) | static_cast<std::uint64_t>(call.type) << 8 |
                static_cast<std::uint64_t>(call.op) << 16 |
                static_cast<std::uint64_t>(call.accumulates_f32) * (kAccumulatesF32 << 24) |
                static_cast<std::uint64_t>(call.reduction != 0) * (kOwnReduction << 24) |
                static_cast<std::uint64_t>(call.reproducible) * (kReproducible << 24) |
                static_cast<std::uint64_t>(call.algorithm) << 32,
            static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) |
                static_cast<std::uint64_t>(call.lengths) << 32,
            call.count, call.reduction};
  }

  /// Records call `number`, before its first message is posted. Called by the owner.
  void record(std::uint64_t number, const Entry& call) noexcept {
    Call& c = calls[number % kCalls];
    c.number_plus_one.store(0, std::memory_order_relaxed);
    sync::compiler_fence(std::memory_order_seq_cst);
    c.kinds.store(call.kinds, std::memory_order_release);
    if (call.reduction != 0) c.reduction.store(call.reduction, std::memory_order_release);
    c.root.store(call.root, std::memory_order_release);
    c.count.store(call.count, std::memory_order_release);
    c.number_plus_one.store(number + 1, std::memory_order_release);
    entered.store(number + 1, std::memory_order_release);
  }

  /// Returns call `number` if it is among the last kCalls and is not being overwritten. Called by
  /// any rank.
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

  /// Encodes for `waits` that operation `number` waits for `peer`.
  static constexpr std::uint64_t waiting(std::uint64_t number, int peer) noexcept {
    return number << 32 | static_cast<std::uint32_t>(peer + 1);
  }
  /// Returns the rank for which operation `number` waits, or -1 where that is not known. Called by
  /// any rank.
  int waits_for(std::uint64_t number) const noexcept {
    const std::uint64_t said = waits.load(std::memory_order_acquire);
    return said >> 32 == (number & 0xffffffff) ? static_cast<int>(said & 0xffffffff) - 1 : -1;
  }

  /// Records that this rank has failed, and why; peers that wait for it pass the error on. Called
  /// once, by the owner.
  void fail(ErrorKind kind, std::string_view why) noexcept {
    const std::size_t bytes = why.size() < kFailureBytes ? why.size() : kFailureBytes;
    std::memcpy(failure.data(), why.data(), bytes);
    failure_bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
    failure_kind.store(static_cast<std::uint32_t>(kind), std::memory_order_relaxed);
    state.store(StatusPageState::failed, std::memory_order_release);
  }

  /// Marks the page as closed; returns false where it was closed or failed already. A rank that has
  /// failed stays failed, so that peers can still read why. Called by the owner.
  bool close() noexcept {
    if (state.load(std::memory_order_relaxed) != StatusPageState::open) return false;
    state.store(StatusPageState::closed, std::memory_order_release);
    return true;
  }

  /// Returns why the rank has failed. Any rank may call it once it has read (with acquire) that
  /// `state` is failed.
  std::string_view failure_text() const noexcept {
    const std::size_t bytes = failure_bytes.load(std::memory_order_relaxed);
    return {failure.data(), bytes < kFailureBytes ? bytes : kFailureBytes};
  }
};
/// A status page that several transports of one rank show.
struct ShownPage {
  std::shared_ptr<StatusPage> page = nullptr;  ///< Null: the transport makes its own.
  /// The descriptor of the page's memory, which is open until they are connected; -1 where peers
  /// cannot map it. A transport whose peers do has to have it.
  int memory = -1;
};

/// Returns the page that a transport has made, which lives longer than those that show it.
inline ShownPage page_of_another(StatusPage& page) { return {{std::shared_ptr<void>(), &page}}; }

static_assert(sizeof(StatusPage) == 3712 && sizeof(StatusPage::Call) == 40,
              "both ends of a connection agree on the page");
static_assert(offsetof(StatusPage, sleepers) == 0 && offsetof(StatusPage, state) == 8);
static_assert(offsetof(StatusPage, entered) == kCacheLine &&
                  offsetof(StatusPage, calls) == 2 * kCacheLine,
              "what changes with each call shares no cache line with `sleepers`");
static_assert(kCollectives <= 256 && kDataTypes <= 256 && kOps <= 256,
              "a record has 8 bits for each");
static_assert((StatusPage::kAccumulatesF32 | StatusPage::kOwnReduction |
               StatusPage::kReproducible) <= 0xff);
static_assert(StatusPage::waiting(1, -1) == std::uint64_t{1} << 32);

}  // namespace tutti
