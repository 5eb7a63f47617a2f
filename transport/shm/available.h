// Finds out how much memory is left, before some is reserved.
#pragma once

#include <cstddef>
#include <string>

namespace tutti::shm {

/// Returns how many bytes this process could still take: the smallest of what the machine has
/// available and what each memory cgroup (version 1 or 2) above the process has left. The page
/// cache counts as free.
///
/// It is called before memory is reserved, because fallocate(2) does not refuse: it takes page
/// after page until the kernel kills a process. `root` is a prefix of /proc and /sys, for tests.
std::size_t available_memory(const std::string& root = "");

}  // namespace tutti::shm
