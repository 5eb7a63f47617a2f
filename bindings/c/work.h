// tuttiWork_t: the runtime's operation itself, held once, so that the handle costs no allocation.
// In the low bits of its address, which are zero, is the handle's number among the operation's,
// modulo 64: one that was freed is noticed as long as its communicator lives.
#pragma once

#include <tutti/tutti.h>

#include <tutti/work.hpp>

namespace tutti::c {

/// Null for a Work that has none.
tuttiWork_t handle(Work work) noexcept;
/// What the handle holds, held once more. Throws `usage` where it has been freed, as taken() does.
Work held(tuttiWork_t work);
/// What the handle holds, and no longer does.
Work taken(tuttiWork_t work);

}  // namespace tutti::c
