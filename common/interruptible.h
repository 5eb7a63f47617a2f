// What the waits of the calling thread ask, while the program has an Interruptible.
#pragma once

#include <tutti/options.hpp>

namespace tutti {

/// Returns whether there is an Interruptible in this thread whose function can be asked, so that a
/// wait must not sleep for long.
bool can_be_interrupted() noexcept;
/// Returns whether the calls of this thread should end. Once they should, this stays so until the
/// Interruptible ends.
bool is_interrupted();

}  // namespace tutti
