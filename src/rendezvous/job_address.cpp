#include "rendezvous/job_address.h"

#include <fmt/format.h>

namespace tutti {

std::string JobAddress::socket_name() const { return fmt::format("tutti-{}-{}", uid, port); }

std::uint64_t JobAddress::job_hash() const {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a: equal in every build, unlike std::hash
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace tutti
