// Ranks on two machines: network namespaces with a cable (veth) between them, made and removed
// here.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <string>

#include "common/fd.h"
#include "common/log.h"
#include "rendezvous/hello.h"
#include "rendezvous/open_store.h"
#include "test_job.h"

namespace tutti {
namespace {

using testing::HasSubstr;

bool run(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;
}

/// "a" has 10.77.0.1 and fd77::1, "b" has .2 and ::2.
class Machines {
 public:
  Machines() {
    const std::string a = name("a"), b = name("b");
    made_ = run("ip netns add " + a) && run("ip netns add " + b) &&
            run(fmt::format("ip link add cable netns {} type veth peer name cable netns {}", a, b));
    for (const char* machine : {"a", "b"}) {
      const int number = *machine == 'a' ? 1 : 2;
      const std::string ip = "ip -n " + name(machine);
      made_ = made_ && run(fmt::format("{} addr add 10.77.0.{}/24 dev cable", ip, number)) &&
              run(fmt::format("{} addr add fd77::{}/64 dev cable nodad", ip, number)) &&
              run(ip + " link set lo up") && run(ip + " link set cable up");
    }
  }
  ~Machines() {  // the children leave it by _exit
    run("ip netns del " + name("a"));
    run("ip netns del " + name("b"));
  }
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  bool made() const { return made_; }
  void cut_cable() const { run("ip -n " + name("a") + " link set cable down"); }

  /// The calling process, which has one thread, goes to that machine.
  void enter(const std::string& machine) const {
    const Fd there(open(("/run/netns/" + name(machine)).c_str(), O_RDONLY | O_CLOEXEC));
    if (!there || setns(there.get(), CLONE_NEWNET) != 0) _exit(9);
  }

 private:
  std::string name(const std::string& machine) const {
    return fmt::format("tutti-test-{}-{}", owner_, machine);
  }

  const pid_t owner_ = getpid();
  bool made_ = false;
};

class TwoMachines : public testing::Test {
 protected:
  void SetUp() override {
    if (!machines_.made())
      GTEST_SKIP() << "network namespaces cannot be made here (root and `ip netns` are needed)";
  }

  /// Rank `rank` of three, at the store of rank 0 on machine a; `body` may use it.
  Child rank(int rank, const std::string& machine, const std::string& master,
             const std::function<void(Store&)>& body) const {
    return Child([=, this] {
      machines_.enter(machine);
      LaunchEnvironment launch;
      launch.rank = rank;
      launch.size = 3;
      launch.master_address = master;
      launch.master_port = 29'500;
      Config config;
      config.secret = "of the two machines' job";
      Log log(LogLevel::error, {});
      body(*open_store(launch, config, in_time(), log).store);
    });
  }

  Machines machines_;
};

void meet(Store& store, int rank) {
  store.set(fmt::format("host {}", rank), host_identity(), in_time());
  const std::string first = store.get("host 0", in_time());
  const bool here = rank != 1;  // as rank 0
  if ((first == host_identity()) != here) _exit(2);
  for (int peer = 0; peer < 3; ++peer) store.wait(fmt::format("host {}", peer), in_time());
}

TEST_F(TwoMachines, MeetOverIpv4AndIpv6AndKnowWhoIsOnWhich) {
  for (const std::string master : {"10.77.0.1", "fd77::1"}) {
    Child first = rank(0, "a", master, [](Store& store) { meet(store, 0); });
    Child other = rank(1, "b", master, [](Store& store) { meet(store, 1); });
    Child neighbour = rank(2, "a", master, [](Store& store) { meet(store, 2); });
    EXPECT_EQ(first.wait() + other.wait() + neighbour.wait(), 0) << master;
  }
}

TEST_F(TwoMachines, EndTheirCallsByTheDeadlineWhenTheCableIsCut) {
  int cut[2];
  ASSERT_EQ(pipe(cut), 0);
  Child first = rank(0, "a", "10.77.0.1", [](Store& store) { store.wait("over", in_time()); });
  Child other = rank(1, "b", "10.77.0.1", [&](Store& store) {
    char byte = 0;
    store.set("here", "", in_time());
    static_cast<void>(!read(cut[0], &byte, 1));
    const Error error = error_of([&] { store.set("key", "value", in(milliseconds(300))); });
    if (error.kind() != ErrorKind::timeout) _exit(2);
  });
  Child neighbour = rank(2, "a", "10.77.0.1", [&](Store& store) {
    store.wait("here", in_time());
    machines_.cut_cable();
    static_cast<void>(!write(cut[1], "c", 1));
    store.wait("over", in_time());
  });
  EXPECT_EQ(other.wait(), 0);
  first.end(SIGKILL);
  EXPECT_EQ(neighbour.wait(), 1) << "it loses rank 0, whose machine it is on, at once";
  close(cut[0]);
  close(cut[1]);
}

}  // namespace
}  // namespace tutti
