// Chooses how messages in ordinary memory cross a ring between two processes: through the ring,
// where the writer copies them in and the reader copies them out, or by the kernel, which copies
// them once, from the writer's buffer to the reader's, when the reader calls process_vm_readv(2).
//
// Which is faster depends on the program. Where the writer writes a buffer before it sends it, as
// training does, its cache lines have to cross from one core to the other, and the ring is up to
// three times as fast, because both cores move them. Where buffers rest, as in benchmarks, a copy
// by the kernel finds all lines in the caches of the reader's core, and takes two thirds of the
// ring's time (docs/performance.md, "Copies by the kernel"). Therefore both ends time what they
// copy, the reader publishes its times in the ring's memory, and the writer tries the other way now
// and then. Each message says how it travels, so that nothing has to be agreed on.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// Sorts the calls for which times are kept apart, by the bytes that they send over the ring: class
/// k is for 2^(k-1) to 2^k times kLeastBytes. Class 0 is for all other calls, which always use the
/// ring: from 1 MiB on, what rests does not stay in the caches, and the kernel gains nothing.
struct CopyClass {
  static constexpr std::size_t kLeastBytes = 16u << 10, kEndBytes = 1u << 20;
  static constexpr int kMost = std::bit_width(kEndBytes / kLeastBytes) - 1;

  static constexpr int of(std::size_t bytes) noexcept {
    return bytes < kEndBytes ? static_cast<int>(std::bit_width(bytes / kLeastBytes)) : 0;
  }
  static constexpr bool is_timed(int copy_class) noexcept {
    return copy_class >= 1 && copy_class <= kMost;
  }
};
static_assert(CopyClass::of(CopyClass::kLeastBytes - 1) == 0);
static_assert(CopyClass::of(CopyClass::kLeastBytes) == 1);
static_assert(CopyClass::of(CopyClass::kEndBytes - 1) == CopyClass::kMost);

/// Holds the ticks in which 16 KiB are copied, as a mean of the last calls; they are 0 until
/// something was copied.
class CopyTime {
 public:
  constexpr CopyTime() = default;
  constexpr explicit CopyTime(std::uint16_t ticks) noexcept : ticks_(ticks) {}

  constexpr void record(int copy_class, std::uint64_t elapsed, std::size_t bytes) noexcept {
    assert(bytes > 0 && CopyClass::is_timed(copy_class));
    const std::uint64_t now = std::clamp<std::uint64_t>(elapsed * kUnit / bytes, 1, 0xffff);
    // Each call counts as much as all calls before it, however many messages it has.
    const std::size_t of_call = CopyClass::kLeastBytes << (copy_class - 1);
    const std::uint64_t share = std::max<std::uint64_t>(2, 2 * of_call / bytes);
    ticks_ = static_cast<std::uint16_t>(
        ticks_ == 0 ? now : (ticks_ * (share - 1) + now + share - 1) / share);
  }
  constexpr std::uint32_t ticks() const noexcept { return ticks_; }

 private:
  static constexpr std::size_t kUnit = 16u << 10;
  std::uint16_t ticks_ = 0;
};

/// Holds the times that the reader's copies take: those out of the ring, and those by the kernel.
struct ReadTimes {
  CopyTime ring, kernel;

  /// Returns the form that lies in the ring's memory. Any word can be unpacked.
  constexpr std::uint32_t packed() const noexcept { return ring.ticks() | kernel.ticks() << 16; }
  static constexpr ReadTimes unpacked(std::uint32_t word) noexcept {
    return {CopyTime(static_cast<std::uint16_t>(word)),
            CopyTime(static_cast<std::uint16_t>(word >> 16))};
  }
};

/// Makes the choice at the writing end of one ring. One thread at a time uses it.
class KernelCopies {
 public:
  /// A trial of the other way has kTrial calls, whose first ones only warm the caches. So many
  /// calls come before the first trial of the kernel, and of the ring; four times as many come
  /// after each trial that has changed nothing. In the last kTimed calls before a trial the ring is
  /// timed.
  static constexpr std::uint16_t kTrial = 8, kBeforeKernel = 16, kBeforeRing = 256;
  static constexpr std::uint16_t kMostBetween = 2048, kTimed = 8;

  struct Choice {
    bool by_kernel = false;
    bool timed = false;  ///< Both ends record what the call's copies take.
  };
  /// Decides for the messages of one call, and counts the call. `both_ways` says that this rank
  /// receives as well as it sends. `times_of_reader` returns the reader's ReadTimes; few calls need
  /// them, since each look at them takes a cache line from the reader's core.
  template <typename TimesOfReader>
  Choice choose(int copy_class, bool both_ways, TimesOfReader&& times_of_reader) noexcept {
    State& state = state_of(copy_class);
    const bool kernel = (state.by_kernel || (state.trying && state.left == 0)) &&
                        kernel_is_faster(state, copy_class, both_ways, times_of_reader());
    if (state.left == 0) {
      if (state.trying)
        decide(state, kernel);
      else
        begin_trial(state, copy_class);
    }
    --state.left;
    // The program may work otherwise than before, which a copy by the kernel shows at once.
    if (state.by_kernel && !state.trying && !kernel) state = {.written = state.written};
    return {state.by_kernel != state.trying,
            state.by_kernel || state.trying || state.left < kTimed};
  }
  /// Records the time in which a message was copied into the ring.
  void record_write(int copy_class, std::uint64_t elapsed, std::size_t bytes) noexcept {
    state_of(copy_class).written.record(copy_class, elapsed, bytes);
  }

 private:
  struct State {
    CopyTime written;                       // into the ring
    bool by_kernel = false;                 // what was faster in the last trial
    bool trying = false;                    // whether the other way is tried
    std::uint16_t between = kBeforeKernel;  // the calls from one trial to the next
    std::uint16_t left = kBeforeKernel;     // the calls until the trial begins or ends
  };

  State& state_of(int copy_class) noexcept {
    assert(CopyClass::is_timed(copy_class));
    return states_[static_cast<std::size_t>(copy_class) - 1];
  }
  static constexpr void begin_trial(State& state, int copy_class) noexcept {
    state.trying = true;
    state.left = copy_class < 5 ? kTrial : kTrial - 2;
  }
  static constexpr void decide(State& state, bool kernel) noexcept {
    if (kernel == state.by_kernel)
      state.between = std::min<std::uint16_t>(4 * state.between, kMostBetween);
    else
      state.between = kernel ? kBeforeRing : kBeforeKernel;
    state.by_kernel = kernel;
    state.trying = false;
    state.left = state.between;
  }

  // A ring takes both copies where each core makes both, for one direction each; else the cores
  // copy at the same time, but for the first part of a call. To be taken up, the kernel has to be
  // an eighth faster than that, and its lines have to have rested in the caches of the reader's
  // core, where they take no longer than those of a ring. Lines that the reader's core has taken
  // from the writer's cost more than is measured here, since the writer's has to take them back
  // before the program can write them again.
  static constexpr bool kernel_is_faster(const State& state, int copy_class, bool both_ways,
                                         const ReadTimes& reader) noexcept {
    const std::uint32_t in = state.written.ticks(), out = reader.ring.ticks();
    const std::uint32_t kernel = reader.kernel.ticks();
    if (in == 0 || out == 0 || kernel == 0) return false;
    const std::uint32_t slower = std::max(in, out), faster = std::min(in, out);
    const std::uint32_t ring = both_ways ? in + out : slower + faster / 4;
    const auto of_call = [&](std::uint32_t ticks) { return ticks >> (copy_class - 1); };
    const std::uint32_t call = kernel + of_call(kHearing);
    const std::uint32_t rested = slower + of_call(kSystemCall);
    if (state.by_kernel) return call <= ring && kernel < rested + slower / 8;
    return call + call / 8 < ring && kernel < rested;
  }
  // Where the kernel copies, a call takes so many ticks longer until the writer hears that the
  // reader has its data, and for the system call itself.
#if defined(__x86_64__)
  static constexpr std::uint32_t kHearing = 700, kSystemCall = 1000;
#else
  static constexpr std::uint32_t kHearing = 30, kSystemCall = 40;  // ticks() has 100 MHz or less
#endif

  std::array<State, CopyClass::kMost> states_{};
};

}  // namespace tutti
