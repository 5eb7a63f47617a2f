// Ends a test program in which a test hangs, and writes the stacks of all threads of this process
// and of the processes that it has started to standard error. Every GoogleTest suite has it,
// because it contains main().
#pragma once

#include <chrono>

namespace tutti::watchdog {

/// The time that a test may take, which is many times what it takes on an idle machine. It is five
/// times as long under a sanitizer. TUTTI_TEST_PATIENCE sets another number of seconds, where 0
/// means no limit, as for a debugger.
inline constexpr std::chrono::seconds kPatience{60};

/// Allows the running test, which calls this function, to take `patience` in place of kPatience.
void allow(std::chrono::seconds patience);

/// Writes the stacks now and returns. This is for a test that detects a hang itself.
void write_stacks();

}  // namespace tutti::watchdog
