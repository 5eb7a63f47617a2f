#include "rendezvous/hello.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <concepts>
#include <cstring>
#include <fstream>

#include <tutti/error.hpp>

namespace tutti {
namespace {

// Fields one after the other: numbers as they lie in memory, text with its length before it. The
// first tells a hello of another layout from damage.
constexpr std::uint32_t kLayout = 0x7475'0002;

template <std::integral T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out.append(text);
}

class Reader {
 public:
  Reader(std::string_view bytes, int rank) : rest_(bytes), rank_(rank) {}

  template <std::integral T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint32_t>())); }
  bool at_end() const { return rest_.empty(); }

  [[noreturn]] void refuse(std::string_view why) const {
    throw Error(ErrorKind::corrupt,
                fmt::format("rank {} sent a hello that cannot be read ({}): is it running the same "
                            "build of tutti?",
                            rank_, why));
  }

 private:
  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) refuse("cut short");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  std::string_view rest_;
  const int rank_;
};

}  // namespace

std::string encode(const Hello& hello) {
  std::string out;
  put(out, kLayout);
  put(out, hello.version);
  put(out, hello.settings);
  put(out, hello.schedules);
  put(out, hello.costs);
  put(out, hello.host);
  put(out, hello.pid);
  put(out, to_text(hello.cpus));
  for (const auto& [transport, address] : hello.addresses) {
    put(out, transport);
    put(out, address);
  }
  return out;
}

Hello decode_hello(std::string_view bytes, int rank) {
  Reader reader(bytes, rank);
  if (reader.number<std::uint32_t>() != kLayout) reader.refuse("unknown layout");
  Hello hello;
  hello.version = reader.text();
  hello.settings = reader.text();
  hello.schedules = reader.number<std::uint64_t>();
  hello.costs = reader.text();
  hello.host = reader.text();
  hello.pid = reader.number<pid_t>();
  auto cpus = parse_cpus(reader.text());
  if (!cpus) reader.refuse("no list of cpus");
  hello.cpus = *std::move(cpus);
  while (!reader.at_end()) {
    std::string transport = reader.text();
    std::string address = reader.text();
    if (!hello.addresses.emplace(std::move(transport), std::move(address)).second)
      reader.refuse("a transport twice");
  }
  return hello;
}

std::string_view machine_of(std::string_view host) { return host.substr(0, host.find('/')); }

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network {};
  if (!boot.empty() && stat("/proc/self/ns/net", &network) == 0)
    return fmt::format("{}/{}", boot, network.st_ino);
  std::array<char, 256> name{};  // no /proc here
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace tutti
