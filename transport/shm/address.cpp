#include "transport/shm/address.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <ios>
#include <sstream>

namespace tutti::shm {
namespace {

constexpr std::string_view kTag = "shm/1";

}  // namespace

std::string Address::to_string() const {
  return fmt::format("{} {:x} {:x} {} {} {} {}", kTag, identity.high, identity.low, machine,
                     network, user, process);
}

std::optional<Address> Address::parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string tag;
  Address address;
  words >> tag >> std::hex >> address.identity.high >> address.identity.low >> std::dec >>
      address.machine >> address.network >> address.user >> address.process;
  if (words.fail() || tag != kTag || !(words >> std::ws).eof()) return std::nullopt;
  return address;
}

std::string Address::socket_name() const {
  return fmt::format("tutti-shm-{:016x}{:016x}", identity.high, identity.low);
}

Address own_address(Random& random) {
  Address address;
  address.identity = {random.next(), random.next()};
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  if (!(boot >> address.machine)) address.machine = "unknown";
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) == 0) address.network = network.st_ino;
  address.user = geteuid();
  address.process = getpid();
  return address;
}

std::string why_unreachable(const Address& here, const Address& there) {
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
