// A rank's store where rank 0 serves it over sockets: Unix ones on its machine, TCP between
// machines.
#pragma once

#include <memory>

#include <tutti/store.hpp>

#include "common/process_owned.h"
#include "rendezvous/launch/pmix.h"
#include "rendezvous/store/store_client.h"
#include "rendezvous/store/store_server.h"

namespace tutti {

/// Thread-safe. In a forked child every call throws `usage`.
class SocketStore final : public Store {
 public:
  /// `server`: on rank 0, the one that it has joined; it ends, lingering, with this store.
  /// `launcher`: kept as long as this.
  SocketStore(rendezvous::Joined joined, int rank, std::unique_ptr<StoreServer> server = nullptr,
              std::shared_ptr<const pmix::Client> launcher = nullptr);

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;

 private:
  const std::shared_ptr<const pmix::Client> launcher_;
  const std::unique_ptr<StoreServer>
      server_;  // outlives the client, which leaves before it lingers
  ProcessOwned<rendezvous::StoreClient> client_;
};

}  // namespace tutti
