// tuttiWork_t is a pointer to the runtime's operation, to which it owns a reference, so that the
// handle costs no allocation. The low bits of the address, which would be zero, hold the number of
// the handle among those of the operation, modulo 64. That number detects a handle that was freed,
// as long as its communicator exists.
#pragma once

#include <tutti/tutti.h>

#include <tutti/work.hpp>

namespace tutti::c {

/// Returns a handle that takes over the reference of `work`; null if `work` has no operation.
tuttiWork_t handle(Work work) noexcept;
/// Returns another reference to the handle's operation. Throws `usage` if the handle has been
/// freed, as taken() does.
Work held(tuttiWork_t work);
/// Takes the reference away from the handle, which is then freed.
Work taken(tuttiWork_t work);

}  // namespace tutti::c
