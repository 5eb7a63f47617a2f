// The link from a Buffer to the communicator that lends its memory to peers. A Buffer may outlive
// that communicator.
#pragma once

#include <cstdint>

#include "common/sync.h"
#include "transport/channel.h"

namespace tutti {

/// Takes back the memory of Buffers, as long as their communicator exists. Thread-safe.
class Lender {
 public:
  explicit Lender(Transport& transport) : transport_(&transport) {}

  /// The communicator ends: take_back() does nothing from now on.
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    transport_ = nullptr;
  }
  void take_back(std::uint32_t segment) noexcept {
    const std::lock_guard lock(mutex_);
    if (transport_ != nullptr) transport_->unregister(segment);
  }

 private:
  sync::Mutex mutex_;
  Transport* transport_;  // guarded by mutex_
};

}  // namespace tutti
