// How much memory is left, asked before it is reserved.
#pragma once

#include <cstddef>
#include <string>

namespace tutti::shm {

/// Bytes that this process could still take: the least of what the machine has available and what
/// each memory cgroup (version 1 or 2) above the process has left, page cache counted as free.
///
/// Asked first because fallocate(2) would not refuse: it takes page after page until the kernel
/// kills a process. `root` stands before /proc and /sys, for tests.
std::size_t available_memory(const std::string& root = "");

}  // namespace tutti::shm
