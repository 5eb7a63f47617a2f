#include "rendezvous/open_store.h"

#include "rendezvous/memory_store.h"
#include "rendezvous/unix_store.h"

namespace tutti {

std::shared_ptr<Store> open_store(const LaunchEnvironment& launch, Store::Deadline deadline,
                                  Log& log) {
  if (launch.size == 1) return std::make_shared<MemoryStore>();
  const JobAddress job{launch.master_port, launch.size, launch.job};
  std::unique_ptr<StoreServer> server;
  if (launch.rank == 0) server = std::make_unique<StoreServer>(job);
  rendezvous::Joined joined = rendezvous::join_store(job, launch.rank, deadline);
  log.write(LogLevel::debug, "rank {} of {}: joined the store @{} of {}", launch.rank, launch.size,
            job.socket_name(), joined.server.describe());
  return std::make_shared<UnixStore>(std::move(joined), launch.rank, std::move(server));
}

}  // namespace tutti
