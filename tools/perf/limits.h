// What this machine could do at best, measured with two threads on two cores and nothing else.
#pragma once

#include <cstddef>
#include <memory>

namespace tutti::perf {

/// Least times of two cores that work together.
///
/// An all-reduce of two ranks cannot be faster than a cache line from one core to the other, nor
/// than both cores copying its size at once, with half of it last written by the other core. What
/// goes one way, a broadcast say, not faster than one core copies what the other has written.
///
/// One thread at a time; starts threads of its own for each measurement.
class Limits {
 public:
  struct Copy {
    double plain_us = 0, streaming_us = 0;
    [[nodiscard]] double least_us() const {
      return plain_us < streaming_us ? plain_us : streaming_us;
    }
  };

  /// The two cores may be one, on a machine with a single one: then times mean little.
  Limits(int core_a, int core_b) : cores_{core_a, core_b} {}

  /// A cache line from one core to the other: the median over some hundred microseconds.
  [[nodiscard]] double one_way_ns() const;
  /// Each core copies `bytes`: the lower quartile over ten milliseconds. Needs four times as much
  /// memory.
  [[nodiscard]] Copy copy(std::size_t bytes) const;
  /// One core copies `bytes` that the other has just written. Needs twice as much memory.
  [[nodiscard]] Copy take_over(std::size_t bytes) const;
  /// The greatest of one_way_ns() and the faster of copy(): in microseconds.
  [[nodiscard]] double all_reduce_us(std::size_t bytes) const;

 private:
  int cores_[2];
};

}  // namespace tutti::perf
