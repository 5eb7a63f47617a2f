// Wraps the program's own key-value store.
#pragma once

#include <tutti/tutti.h>

#include <memory>
#include <tutti/store.hpp>

namespace tutti::c {

/// Returns `store` as the library's interface. It is released when the last communicator stops
/// using it. Throws `usage`.
std::shared_ptr<Store> wrap(const tuttiStore_t* store);

}  // namespace tutti::c
