// Finds out how much memory is left, before some is reserved.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "common/clock.h"

namespace tutti::shm {

/// Returns how many bytes this process could still take: the smallest of what the machine has
/// available and what each memory cgroup (version 1 or 2) above the process has left. The page
/// cache counts as free.
///
/// It is called before memory is reserved, because fallocate(2) does not refuse: it takes page
/// after page until the kernel kills a process. `root` is a prefix of /proc and /sys, for tests.
std::size_t available_memory(const std::string& root = "");

/// Grants memory while there is some. A look at what is available reads some ten files, and a start
/// of hundreds of ranks asks as often as there are ranks, so a look also grants what is asked for
/// in the next 100 ms, up to a 1024th of what is available: together a thousand processes that look
/// at the same time get no more than there is. For one thread at a time.
class Allowance {
 public:
  explicit Allowance(std::string root = "") : root_(std::move(root)) {}

  /// Returns none where `bytes` are granted, and else how many are available.
  std::optional<std::size_t> refuse(std::size_t bytes, TimePoint now);

 private:
  const std::string root_;
  std::size_t granted_ = 0;  // for what is asked for before until_
  TimePoint until_{};
};

}  // namespace tutti::shm
