// The program's own key-value store.
#pragma once

#include <tutti/tutti.h>

#include <memory>
#include <tutti/store.hpp>

namespace tutti::c {

/// `store` as the library sees it, released when the last communicator lets go. Throws `usage`.
std::shared_ptr<Store> wrap(const tuttiStore_t* store);

}  // namespace tutti::c
