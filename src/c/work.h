// tuttiWork_t: the runtime's operation itself, held once, so that the handle costs no allocation.
#pragma once

#include <tutti/tutti.h>

#include <tutti/work.hpp>

namespace tutti::c {

/// Null for a Work that has none.
tuttiWork_t handle(Work work) noexcept;
/// What the handle holds, held once more.
Work held(tuttiWork_t work) noexcept;
/// What the handle holds, and no longer does.
Work taken(tuttiWork_t work) noexcept;

}  // namespace tutti::c
