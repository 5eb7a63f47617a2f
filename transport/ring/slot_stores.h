// Chooses how the payload of a message is written into a ring: through the caches, or with
// streaming stores, which send it to memory past them.
//
// Where both ends of a ring share a cache, ordinary stores are the fastest. Where they do not (on
// AMD's processors, cores of two complexes; a virtual machine's cores may be moved from one to the
// other at any time), each line that the reader has in its cache has to be taken from it, and has
// to be fetched from the writer's cache afterwards, both across the processor's fabric: 29 ns a
// line, where streamed lines take 4 (docs/performance.md, "AMD's processors"). The writer notices
// which of the two it is by the time that its ordinary stores take, and so asks nobody.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ticks.h"
#include "transport/status_page.h"

namespace tutti {

/// Belongs to the writing end of one ring, and is used by one thread at a time. Streaming stores
/// are used only where ticks() has a rate of 2 to 4 GHz, which is the case on x86-64.
class SlotStores {
 public:
  /// Messages of at least this size may be streamed.
  static constexpr std::size_t kLeastBytes = 1024;

  /// Writes a message of `bytes` bytes, where `write(streamed)` does so, and counts it.
  /// `operands` is the number of places that `write` reads and writes as many bytes of.
  template <typename Write>
  void write(std::size_t bytes, std::size_t operands, Write&& write) {
    if (!is_timed(bytes)) return write(streams());
    const std::uint64_t begin = ticks();
    write(false);
    record_since(begin, operands, bytes);
  }

  /// Counts a message. Returns whether its time is to be recorded, for which it is written with
  /// ordinary stores.
  bool is_timed(std::size_t bytes) noexcept {
    if constexpr (!kMeasures) return false;
    ++messages_;
    return streams() ? messages_ % 256 == 0 : bytes >= kAlwaysTimed || messages_ % 32 == 0;
  }
  bool streams() const noexcept { return slow_ >= kStreams; }
  /// Records that ordinary stores, with the loads that belong to them, have moved a message of
  /// `bytes` bytes since ticks() returned `begin`. `operands` is that of write(). Those of a short
  /// message are waited for, since the store buffer holds them all.
  void record_since(std::uint64_t begin, std::size_t operands, std::size_t bytes) noexcept {
    if (bytes < kAlwaysTimed) wait_for_stores();
    record(ticks() - begin, operands * (bytes / kCacheLine));
  }
  /// Records the time in which ordinary stores, with the loads that belong to them, moved so many
  /// cache lines.
  void record(std::uint64_t elapsed, std::size_t lines) noexcept {
    if (elapsed > kSlowTicks * lines)
      slow_ = streams() ? kMost : slow_ + 1;
    else
      slow_ -= slow_ < kStep ? slow_ : (streams() ? kStep : 1);
  }

 private:
#if defined(__x86_64__)
  static constexpr bool kMeasures = true;
  static void wait_for_stores() noexcept { __builtin_ia32_mfence(); }
#else
  static constexpr bool kMeasures = false;
  static void wait_for_stores() noexcept {}
#endif
  // Timing a shorter message costs more than a few percent of its time.
  static constexpr std::size_t kAlwaysTimed = 16 << 10;
  // A copy takes 2 to 7 ns a line between cores that share a cache, also where its data comes from
  // memory, and 20 to 30 between others. It reads a line and writes one.
  static constexpr std::uint64_t kSlowTicks = 14;
  // It takes four slow messages more than fast ones to begin, and two fast ones to end.
  static constexpr std::uint32_t kStreams = 4, kMost = 8, kStep = 4;

  std::uint32_t messages_ = 0;
  std::uint32_t slow_ = 0;
};

}  // namespace tutti
