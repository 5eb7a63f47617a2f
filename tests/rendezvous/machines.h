// Two simulated machines: network namespaces with a virtual cable (veth) between them, which this
// class creates and removes.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "common/fd.h"

namespace tutti {

/// Machine "a" has the addresses 10.77.0.1 and fd77::1, machine "b" has 10.77.0.2 and fd77::2.
/// TUTTI_TEST_CABLE may hold options of netem for the cable, for example "delay 20ms loss 1%".
class Machines {
 public:
  Machines() {
    remove_those_left();
    const std::string a = name("a"), b = name("b");
    made_ = run("ip netns add " + a) && run("ip netns add " + b) &&
            run(fmt::format("ip link add cable netns {} type veth peer name cable netns {}", a, b));
    for (const char* machine : {"a", "b"}) {
      const int number = *machine == 'a' ? 1 : 2;
      const std::string ip = "ip -n " + name(machine);
      made_ = made_ && run(fmt::format("{} addr add 10.77.0.{}/24 dev cable", ip, number)) &&
              run(fmt::format("{} addr add fd77::{}/64 dev cable nodad", ip, number)) &&
              run(ip + " link set lo up") && run(ip + " link set cable up");
      if (const char* netem = std::getenv("TUTTI_TEST_CABLE"))
        made_ = made_ && run(fmt::format("tc -n {} qdisc add dev cable root netem {}",
                                         name(machine), netem));
    }
  }
  ~Machines() {
    if (getpid() != owner_) return;
    run("ip netns del " + name("a"));
    run("ip netns del " + name("b"));
  }
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  static constexpr const char* kMissing =
      "network namespaces cannot be made here (root and `ip netns` are needed)";
  bool made() const { return made_; }
  void cut_cable() const { run("ip -n " + name("a") + " link set cable down"); }
  void mend_cable() const { run("ip -n " + name("a") + " link set cable up"); }

  /// Moves the calling process, which must have only one thread, to that machine.
  void enter(const std::string& machine) const {
    const Fd there(open(("/run/netns/" + name(machine)).c_str(), O_RDONLY | O_CLOEXEC));
    if (!there || setns(there.get(), CLONE_NEWNET) != 0) _exit(9);
  }

 private:
  // Removes the machines of processes that have been killed, which a watchdog does to those that
  // hang.
  static void remove_those_left() {
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator("/run/netns", missing)) {
      const std::string left = entry.path().filename();
      pid_t owner = 0;
      if (std::sscanf(left.c_str(), "tutti-test-%d-", &owner) == 1 && owner > 0 &&
          kill(owner, 0) != 0 && errno == ESRCH)
        run("ip netns del " + left);
    }
  }
  static bool run(const std::string& command) {
    return std::system((command + " 2>/dev/null").c_str()) == 0;
  }
  std::string name(const std::string& machine) const {
    return fmt::format("tutti-test-{}-{}", owner_, machine);
  }

  const pid_t owner_ = getpid();
  bool made_ = false;
};

}  // namespace tutti
