// Makes and reads the contents of an ncclUniqueId.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/store.hpp>

#include "bindings/nccl/abi.h"
#include "bindings/nccl/settings.h"

namespace tutti::nccl {

/// Starts the server of a store in this process, and returns an id that leads to it.
ncclUniqueId make_id(const Settings& settings);

/// Returns the id of the store at `address`, which is the same in all processes. The process of
/// rank 0 serves it (serve()), and it makes any number of communicators.
ncclUniqueId known_id(std::string_view address, const Settings& settings);
bool is_known(const ncclUniqueId& id);
/// Serves the store of a known id, unless this process does. Throws like serve_store_at().
void serve(const ncclUniqueId& id, const Settings& settings);

/// Returns whether the bytes are an id of this library.
bool is_id(const ncclUniqueId& id);

/// Returns the secret of the data between processes that have the id: who has it may join.
std::string secret_of(const ncclUniqueId& id);

/// Connects to the store of `id`. Throws what connect_store() throws, and `peer_lost` soon after
/// `given_up` is true.
std::shared_ptr<Store> open_store(const ncclUniqueId& id, const Settings& settings,
                                  Store::Deadline deadline, const std::atomic<bool>& given_up);

}  // namespace tutti::nccl
