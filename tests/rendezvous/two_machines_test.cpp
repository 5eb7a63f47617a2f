// Tests with ranks on two machines.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/log.h"
#include "machines.h"
#include "rendezvous/host.h"
#include "rendezvous/store/open_store.h"
#include "test_job.h"

namespace tutti {
namespace {

using testing::HasSubstr;

class TwoMachines : public testing::Test {
 protected:
  void SetUp() override {
    if (!machines_.made()) GTEST_SKIP() << Machines::kMissing;
  }

  /// Starts rank `rank` of three on `machine`. It joins the store at `master`, which rank 0 serves
  /// on machine a, and runs `body` with it.
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
  const bool here = rank != 1;  // whether it is on rank 0's machine
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
