// A rank's access to a store that rank 0 serves over sockets: Unix sockets on its own machine, TCP
// between machines.
#pragma once

#include <memory>
#include <optional>

#include <tutti/store.hpp>

#include "common/process_owned.h"
#include "rendezvous/launch/pmix.h"
#include "rendezvous/store/store_client.h"
#include "rendezvous/store/store_server.h"

namespace tutti {

/// A client of the store, and on rank 0 also its server. Thread-safe. In a forked child every call
/// throws `usage`.
class SocketStore final : public Store {
 public:
  /// `server` is the server on rank 0 and null on other ranks; it ends with this store and lingers
  /// (see ~StoreServer()). `launcher` is kept open as long as this store exists. `way` leads to
  /// other servers, and `idle` says that this process is no rank yet, see StoreClient.
  SocketStore(rendezvous::Joined joined, int rank, std::unique_ptr<StoreServer> server = nullptr,
              std::shared_ptr<const pmix::Client> launcher = nullptr,
              std::optional<rendezvous::Way> way = std::nullopt, bool idle = false);

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;
  std::string get_unless(std::string_view key, const Unless& unless, Deadline deadline) override;
  void set_when_gone(std::string_view key, std::string_view value, Deadline deadline) override;
  void share(std::string_view prefix, int sharers) override {
    client_.get().share(prefix, sharers);
  }
  void be_rank(Deadline deadline) { client_.get().be_rank(deadline); }

 private:
  const std::shared_ptr<const pmix::Client> launcher_;
  const std::unique_ptr<StoreServer>
      server_;  // outlives client_, so that this rank leaves before the server lingers
  ProcessOwned<rendezvous::StoreClient> client_;
};

}  // namespace tutti
