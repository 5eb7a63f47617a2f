// What Buffers know of the communicator that lends them to its peers, whose end they may outlive.
#pragma once

#include <cstdint>

#include "common/sync.h"
#include "transport/channel.h"

namespace tutti {

/// Thread-safe.
class Lender {
 public:
  explicit Lender(Transport& transport) : transport_(&transport) {}

  /// The communicator ends: nobody hears of what is taken back.
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
