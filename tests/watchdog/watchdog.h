// Ends a test program in which a test hangs, with the stacks of all threads of this process and of
// those that it has started on standard error. Every GoogleTest suite has it: main() is here.
#pragma once

#include <chrono>

namespace tutti::watchdog {

/// What a test may take: many times what it takes where nothing else runs. Five times as long under
/// a sanitizer. TUTTI_TEST_PATIENCE says other seconds; 0: for ever, as in a debugger.
inline constexpr std::chrono::seconds kPatience{60};

/// The running test may take longer, which it knows: `patience` in place of kPatience.
void allow(std::chrono::seconds patience);

/// Writes them now, and goes on: for a test that finds something stuck by itself.
void write_stacks();

}  // namespace tutti::watchdog
