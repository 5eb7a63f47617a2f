#include "rendezvous/launch/job_address.h"

#include <fmt/format.h>

#include <cassert>

#include "common/text.h"

namespace tutti {

std::string describe_rank(int rank) {
  return rank >= kFirstNewcomer ? "a newcomer" : fmt::format("rank {}", rank);
}

std::string JobAddress::socket_name() const {
  assert(port >= 0 && size >= 1);
  if (server != 0) return fmt::format("tutti-{}-store-{:016x}", uid, server);
  return port != 0 ? fmt::format("tutti-{}-{}", uid, port)
                   : fmt::format("tutti-{}-job-{:016x}", uid, job_hash());
}

std::string JobAddress::place_name() const {
  if (port != 0) return "MASTER_PORT";
  return job.empty() && server != 0 ? "address" : "job";
}

std::string JobAddress::place() const {
  if (port != 0) return fmt::format("MASTER_PORT {}", port);
  return job.empty() && server != 0 ? fmt::format("@{}", socket_name())
                                    : fmt::format("job {}", shown(job));
}

std::uint64_t JobAddress::job_hash() const {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a; unlike std::hash, all builds agree on it
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace tutti
