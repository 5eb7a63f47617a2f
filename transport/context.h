// The arguments with which a transport is made. Everything to which they point outlives it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <tutti/config.hpp>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "common/secret.h"
#include "transport/doorbell.h"
#include "transport/status_page.h"

namespace tutti {

namespace local {
class Hub;
}

struct TransportContext {
  int rank = 0;
  int size = 1;

  const Clock* clock = nullptr;
  Random* random = nullptr;
  Log* log = nullptr;  ///< May be null; nothing is logged then.

  /// The bytes of payload memory of each ring in memory: a multiple of 64, and at least 3 * 64. All
  /// ranks agree on the sizes.
  std::size_t data_bytes = 1 << 20;
  std::size_t max_message_bytes = 256 << 10;  ///< At most SendRing::max_message_bytes(data_bytes).
  /// The value of TUTTI_MESSAGE_BYTES. Where it is 0, links that are not rings may have messages
  /// larger than max_message_bytes.
  std::size_t message_limit = 0;

  /// May be null in simulations, in which a rank never sleeps.
  std::shared_ptr<const Doorbell> doorbell;
  bool membarrier() const noexcept { return doorbell != nullptr && doorbell->membarrier(); }

  /// The process's settings; null in simulations, whose transports read none. Values on which ranks
  /// first have to agree (the sizes), and values that have been read from files (the secret), are
  /// members of this structure instead.
  const Config* config = nullptr;
  /// The job's secret, with which ranks on different machines authenticate each other.
  /// Config::trust_network says what happens without one.
  Secret secret;

  /// This rank's status page, where there is one already. See Transport::own_status_page().
  ShownPage status_page;

  /// By rank: the peers that another transport reaches, to which this one makes no connection
  /// though they may have an address. Empty where there are none.
  std::vector<bool> elsewhere;
  bool is_elsewhere(int peer) const {
    return !elsewhere.empty() && elsewhere[static_cast<std::size_t>(peer)];
  }

  /// connect() calls it at CheckTimes while it waits. It throws where waiting is in vain, for
  /// example because a rank that is to come has ended. May be null.
  std::function<void()> check;

  /// Where ranks of one process meet; null where the ranks are not in one process.
  std::shared_ptr<local::Hub> hub;
};

/// The times at which a rank that connects calls TransportContext::check: soon, and then after ever
/// longer pauses of up to a second. All ranks ask one store, so many begin later.
class CheckTimes {
 public:
  CheckTimes(int ranks, TimePoint start)
      : pause_(std::clamp(ranks, 100, kLongestMs)), next_(start + pause_) {}

  TimePoint next() const noexcept { return next_; }
  /// Returns whether it is time to check, and sets the next time if it is.
  bool due(TimePoint now) noexcept {
    if (now < next_) return false;
    pause_ = std::min(2 * pause_, std::chrono::milliseconds(kLongestMs));
    next_ = now + pause_;
    return true;
  }

 private:
  static constexpr int kLongestMs = 1000;
  std::chrono::milliseconds pause_;
  TimePoint next_;
};

}  // namespace tutti
