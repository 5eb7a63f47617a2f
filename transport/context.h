// What a transport is given. Everything pointed to outlives it.
#pragma once

#include <cstddef>
#include <memory>

#include <tutti/config.hpp>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "common/secret.h"
#include "transport/doorbell.h"

namespace tutti {

struct StatusPage;

namespace local {
class Hub;
}

struct TransportContext {
  int rank = 0;
  int size = 1;

  const Clock* clock = nullptr;
  Random* random = nullptr;
  Log* log = nullptr;  ///< Null: silence.

  /// Agreed by all ranks. `data_bytes`, of each ring in memory: a multiple of 64, at least 3 * 64.
  std::size_t data_bytes = 1 << 20;
  std::size_t max_message_bytes = 256 << 10;  ///< At most SendRing::max_message_bytes(data_bytes).
  /// TUTTI_MESSAGE_BYTES. 0: links that are not rings may have larger messages than that.
  std::size_t message_limit = 0;

  /// Null: this rank never sleeps (simulations).
  std::shared_ptr<const Doorbell> doorbell;
  bool membarrier() const noexcept { return doorbell != nullptr && doorbell->membarrier(); }

  /// The process's settings; null: the transport has none to read (simulations). What ranks have
  /// to agree on first (sizes) and what has been read (the secret) stands beside it.
  const Config* config = nullptr;
  /// The job's secret, by which ranks of different machines know each other; none: see
  /// Config::trust_network.
  Secret secret;

  /// Where this rank's status page is already; null: the transport makes one. See
  /// Transport::own_status_page().
  StatusPage* status_page = nullptr;

  std::shared_ptr<local::Hub> hub;  ///< Where ranks of one process meet; null: not in one process.
};

}  // namespace tutti
