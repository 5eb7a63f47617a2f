// Tests of a store's server that is killed, and of the one that stood by for it, as processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>

#include "common/log.h"
#include "net/tcp_socket.h"
#include "rendezvous/store/open_store.h"
#include "rendezvous/store/protocol.h"
#include "test_job.h"

namespace tutti {
namespace {

enum class Over { unix_socket, tcp, tls };

class Handover : public testing::TestWithParam<Over> {
 protected:
  OpenedStore open(int rank, int size) const {
    LaunchEnvironment launch;
    launch.rank = rank;
    launch.size = size;
    launch.master_address = "127.0.0.1";
    launch.master_port = port_;
    launch.tcp_alone = GetParam() != Over::unix_socket;
    Config config;
    config.secret = "what only this test knows";
    config.tls = GetParam() == Over::tls;
    Log log(LogLevel::error, {});
    return open_store(launch, config, in_time(), log);
  }
  static void await_standby(Store& store, int rank) {
    store.wait(fmt::format("{}{}", rendezvous::kStandbyKey, rank), in_time());
  }

  const int port_ = net::port_of(net::listen_tcp({"127.0.0.1", 0}));
};

INSTANTIATE_TEST_SUITE_P(All, Handover, testing::Values(Over::unix_socket, Over::tcp, Over::tls),
                         [](const auto& over) {
                           return over.param == Over::tcp   ? "Tcp"
                                  : over.param == Over::tls ? "Tls"
                                                            : "Unix";
                         });

// Rank 2 adds; rank 0 is killed while it does, at a different point each time.
TEST_P(Handover, EachAdditionCountsOnceWhereverTheServerIsKilled) {
  constexpr int kAdditions = 60;
  for (int end = 0; end < 6; ++end) {
    Child first([&] {
      const OpenedStore opened = open(0, 3);
      opened.store->wait("over", in_time());
    });
    Child second([&] {
      const OpenedStore opened = open(1, 3);
      await_standby(*opened.store, 1);
      opened.store->wait("over", in_time());
    });
    Child third([&] {
      const OpenedStore opened = open(2, 3);
      await_standby(*opened.store, 1);
      std::thread killer;
      for (int i = 1; i <= kAdditions; ++i) {
        if (i == 5 * (end + 1)) killer = std::thread([&] { kill(first.pid(), SIGKILL); });
        if (opened.store->add("sum", 1, in_time()) != i) _exit(2);
      }
      killer.join();
      opened.store->set("over", "", in_time());
    });
    EXPECT_EQ(third.wait(), 0);
    EXPECT_EQ(second.wait(), 0);
    EXPECT_EQ(first.wait(), 128 + SIGKILL);
  }
}

TEST_P(Handover, AWaitGoesOnAtTheNextServer) {
  Child first([&] { open(0, 3).store->wait("never", in_time()); });
  Child second([&] {
    const OpenedStore opened = open(1, 3);
    await_standby(*opened.store, 1);
    opened.store->set("ready", "", in_time());
    if (opened.store->get("late", in_time()) != "value") _exit(2);
  });
  Child third([&] {
    const OpenedStore opened = open(2, 3);
    await_standby(*opened.store, 1);
    opened.store->wait("ready", in_time());
    kill(first.pid(), SIGKILL);
    opened.store->set("late", "value", in_time());
  });
  EXPECT_EQ(second.wait(), 0);
  EXPECT_EQ(third.wait(), 0);
}

TEST_P(Handover, AStandbyThatIsFrozenIsReplacedAndDoesNotTakeOver) {
  Child second([&] {
    const OpenedStore opened = open(1, 3);
    await_standby(*opened.store, 1);
    raise(SIGSTOP);
    opened.store->wait("over", in_time());
  });
  Child first([&] {
    const OpenedStore opened = open(0, 3);
    await_standby(*opened.store, 2);
    kill(second.pid(), SIGCONT);
    opened.store->set("over", "", in_time());
  });
  Child third([&] {
    const OpenedStore opened = open(2, 3);
    await_standby(*opened.store, 1);
    // Requests that the standby does not confirm show that it is frozen.
    for (;;) {
      opened.store->add("sum", 1, in_time());
      try {
        opened.store->wait(fmt::format("{}2", rendezvous::kStandbyKey), in(milliseconds(100)));
        break;
      } catch (const Error&) {
      }
    }
    opened.store->wait("over", in_time());
  });
  EXPECT_EQ(third.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  EXPECT_EQ(first.wait(), 0);
}

}  // namespace
}  // namespace tutti
