#include "transport/shm/address.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cassert>
#include <ios>
#include <sstream>

#include "rendezvous/host.h"

namespace tutti::shm {
namespace {

constexpr std::string_view kTag = "shm/1";

}  // namespace

std::string Place::to_string() const { return fmt::format("{} {} {}", machine, network, user); }

std::optional<Place> Place::parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  Place place;
  words >> place.machine >> place.network >> place.user;
  if (words.fail() || !(words >> std::ws).eof()) return std::nullopt;
  return place;
}

std::string Address::to_string() const {
  return fmt::format("{} {:x} {:x} {} {}", kTag, identity.high, identity.low, place.to_string(),
                     process);
}

std::optional<Address> Address::parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string tag;
  Address address;
  words >> tag >> std::hex >> address.identity.high >> address.identity.low >> std::dec >>
      address.place.machine >> address.place.network >> address.place.user >> address.process;
  if (words.fail() || tag != kTag || !(words >> std::ws).eof()) return std::nullopt;
  return address;
}

std::string Address::socket_name() const {
  std::string name = fmt::format("tutti-shm-{:016x}{:016x}", identity.high, identity.low);
  assert(name.size() + 1 < sizeof(sockaddr_un::sun_path));
  return name;
}

Address own_address(Random& random) {
  Address address;
  address.identity = {random.next(), random.next()};
  address.place = own_place();
  address.process = getpid();
  return address;
}

Place own_place() {
  Place place;
  place.machine = boot_id().empty() ? "unknown" : boot_id();
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) == 0) place.network = network.st_ino;
  place.user = geteuid();
  return place;
}

std::string why_unreachable(const Place& here, const Place& there) {
  if (here.machine != there.machine)
    return fmt::format("it runs on another machine (boot id {}, here {})", there.machine,
                       here.machine);
  if (here.network != there.network)
    return "it runs in another network namespace (another container?): start all ranks in one";
  if (here.user != there.user)
    return fmt::format("it runs as user {}, this one as user {}: start all ranks as one user",
                       there.user, here.user);
  return {};
}

}  // namespace tutti::shm
