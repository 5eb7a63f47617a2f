// Measures the best that this machine can do, with two threads on two cores and nothing else.
#pragma once

#include <cstddef>

namespace tutti::perf {

/// The least times of two cores that work together.
///
/// An all-reduce of two ranks cannot be faster than a cache line from one core to the other, nor
/// than both cores copying its size at once, with half of it last written by the other core. A
/// transfer in one direction, such as a broadcast, cannot be faster than one core copying what the
/// other has written.
///
/// Only one thread may use it at a time; it starts threads of its own for each measurement.
class Limits {
 public:
  struct Copy {
    double plain_us = 0, streaming_us = 0;
    [[nodiscard]] double least_us() const {
      return plain_us < streaming_us ? plain_us : streaming_us;
    }
  };

  /// The two cores may be the same one, on a machine with a single core; then the times mean
  /// little.
  Limits(int core_a, int core_b) : cores_{core_a, core_b} {}

  /// Returns the time of a cache line from one core to the other: the median over some hundred
  /// microseconds.
  [[nodiscard]] double one_way_ns() const;
  /// Returns the time in which each core copies `bytes`: the lower quartile over ten milliseconds.
  /// It needs four times as much memory.
  [[nodiscard]] Copy copy(std::size_t bytes) const;
  /// Returns the time in which one core copies `bytes` that the other has just written. It needs
  /// twice as much memory.
  [[nodiscard]] Copy take_over(std::size_t bytes) const;
  /// Returns the greater of one_way_ns() and the faster variant of copy(), in microseconds.
  [[nodiscard]] double all_reduce_us(std::size_t bytes) const;

 private:
  int cores_[2];
};

}  // namespace tutti::perf
