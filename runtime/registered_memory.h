// The link from a Buffer to the communicator with whose transport its memory is registered. A
// Buffer may outlive that communicator.
#pragma once

#include <cassert>
#include <cstdint>

#include "common/sync.h"
#include "transport/channel.h"

namespace tutti {

/// Unregisters the memory of Buffers, as long as their communicator exists. Thread-safe.
class Registrar {
 public:
  explicit Registrar(Transport& transport) : transport_(&transport) {}

  /// Is called when the communicator ends: unregister() does nothing from now on.
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    transport_ = nullptr;
  }
  void unregister(std::uint32_t segment) noexcept {
    assert(segment != 0);
    const std::lock_guard lock(mutex_);
    if (transport_ != nullptr) transport_->unregister(segment);
  }

 private:
  sync::Mutex mutex_;
  Transport* transport_;  // guarded by mutex_
};

}  // namespace tutti
