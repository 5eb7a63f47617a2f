// Tests of a store's server that is killed, and of the one that stood by for it, as processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
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
  /// As rank `rank` of a job of `size`, or, without a size, as a newcomer.
  OpenedStore open(int rank, int size) const {
    LaunchEnvironment launch;
    launch.rank = rank;
    launch.size = std::max(size, 1);
    launch.master_address = "127.0.0.1";
    launch.master_port = port_;
    launch.tcp_alone = GetParam() != Over::unix_socket;
    Config config;
    config.secret = "what only this test knows";
    config.tls = GetParam() == Over::tls;
    Log log(LogLevel::error, {});
    return size == 0 ? open_store_as_newcomer(launch, config, in(seconds(20)), log)
                     : open_store(launch, config, in_time(), log);
  }
  OpenedStore open_as_newcomer() const { return open(kFirstNewcomer + 7, 0); }
  template <typename Who>
  static void await_standby(Store& store, const Who& who) {
    store.wait(fmt::format("{}{}", rendezvous::kStandbyKey, who), in_time());
  }

  /// Returns the store of a rank of three once rank 1 stands by to serve it.
  OpenedStore open_with_standby(int rank) const {
    OpenedStore opened = open(rank, 3);
    await_standby(*opened.store, 1);
    return opened;
  }

  // Waits until the process has stopped itself.
  static void await_stop(pid_t pid) {
    for (const auto deadline = in_time();;) {
      std::ifstream file(fmt::format("/proc/{}/stat", pid));
      const std::string stat((std::istreambuf_iterator<char>(file)), {});
      const std::size_t name_end = stat.rfind(')');
      if (name_end != std::string::npos && stat.substr(name_end + 2, 1) == "T") return;
      if (std::chrono::steady_clock::now() > deadline) _exit(9);
      std::this_thread::sleep_for(milliseconds(1));
    }
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
      const OpenedStore opened = open_with_standby(1);
      opened.store->wait("over", in_time());
    });
    Child third([&] {
      const OpenedStore opened = open_with_standby(2);
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
    const OpenedStore opened = open_with_standby(1);
    opened.store->set("ready", "", in_time());
    if (opened.store->get("late", in_time()) != "value") _exit(2);
  });
  Child third([&] {
    const OpenedStore opened = open_with_standby(2);
    opened.store->wait("ready", in_time());
    kill(first.pid(), SIGKILL);
    opened.store->set("late", "value", in_time());
  });
  EXPECT_EQ(second.wait(), 0);
  EXPECT_EQ(third.wait(), 0);
}

// A client asks the next server, too, for the keys that are to be set when it has left.
TEST_P(Handover, ARankThatEndsIsNamedAtTheNextServer) {
  Child first([&] { open(0, 3).store->wait("never", in_time()); });
  Child second([&] {
    const OpenedStore opened = open_with_standby(1);
    opened.store->set("ready", "", in_time());
    const Error error = error_of([&] { opened.store->get_unless("late", {{"lost"}}, in_time()); });
    if (error.kind() != ErrorKind::peer_lost) _exit(2);
    if (std::string(error.what()).find("rank 2 has ended") == std::string::npos) _exit(3);
  });
  Child third([&] {
    const OpenedStore opened = open_with_standby(2);
    opened.store->set_when_gone("lost", "rank 2 has ended", in_time());
    opened.store->wait("ready", in_time());
    kill(first.pid(), SIGKILL);
    opened.store->add("at the next server", 1, in_time());
    raise(SIGKILL);
  });
  EXPECT_EQ(third.wait(), 128 + SIGKILL);
  EXPECT_EQ(second.wait(), 0);
}

TEST_P(Handover, AStandbyThatIsFrozenIsReplacedAndDoesNotTakeOver) {
  Child second([&] {
    const OpenedStore opened = open_with_standby(1);
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
    const OpenedStore opened = open_with_standby(2);
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

// Rank 1 is frozen while more is on its way to it than a socket takes.
TEST_P(Handover, AFrozenStandbyHearsThatItIsDismissedBehindAllThatWasSentToIt) {
  Child second([&] {
    const auto threads = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                           std::filesystem::directory_iterator());
    };
    std::thread([] {}).join();  // With it ThreadSanitizer starts one of its own.
    const auto before = threads();
    const OpenedStore opened = open_with_standby(1);
    raise(SIGSTOP);
    for (const auto deadline = in_time(); threads() > before;) {
      if (std::chrono::steady_clock::now() > deadline) _exit(2);
      std::this_thread::sleep_for(milliseconds(10));
    }
    opened.store->set("over", "", in_time());
  });
  Child first([&] { open(0, 3).store->wait("over", in_time()); });
  Child third([&] {
    const OpenedStore opened = open_with_standby(2);
    await_stop(second.pid());
    for (int i = 0; i < 8; ++i)
      opened.store->set(std::to_string(i), std::string(1 << 20, 'v'), in_time());
    await_standby(*opened.store, 2);
    kill(second.pid(), SIGCONT);
    opened.store->wait("over", in_time());
  });
  EXPECT_EQ(third.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  EXPECT_EQ(first.wait(), 0);
}

TEST_P(Handover, ANewcomerServesTheRanksOfTheJob) {
  int turn[2];
  ASSERT_EQ(pipe(turn), 0);
  Child first([&] { open(0, 3).store->wait("never", in_time()); });
  Child second([&] {
    const OpenedStore opened = open_with_standby(1);
    opened.store->wait("never", in_time());
  });
  Child third([&] {
    const OpenedStore opened = open_with_standby(2);
    opened.store->set("here", "", in_time());
    char byte = 0;
    alarm(30);  // should no turn come
    if (read(turn[0], &byte, 1) != 1) _exit(2);
    opened.store->set("at the second server", "", in_time());
    opened.store->wait("killed", in_time());
    if (opened.store->add("sum", 1, in_time()) != 8) _exit(3);
    opened.store->set("over", "", in_time());
  });
  Child newcomer([&] {
    const OpenedStore opened = open_as_newcomer();
    opened.be_rank();
    opened.store->wait("here", in_time());
    kill(first.pid(), SIGKILL);
    await_standby(*opened.store, "newcomer");
    if (write(turn[1], "t", 1) != 1) _exit(2);
    opened.store->wait("at the second server", in_time());
    opened.store->add("sum", 7, in_time());
    kill(second.pid(), SIGKILL);
    opened.store->set("killed", "", in_time());
    opened.store->wait("over", in_time());
  });
  EXPECT_EQ(third.wait(), 0);
  EXPECT_EQ(newcomer.wait(), 0);
  for (const int end : turn) close(end);
}

// Two newcomers wait; the one with the higher number is called, and the one with the lower is not.
TEST_P(Handover, ANewcomerThatIsNoRankYetIsNotAppointed) {
  Child first([&] {
    const OpenedStore opened = open(0, 2);
    await_standby(*opened.store, 1);
    opened.store->set("first", std::to_string(getpid()), in_time());
    opened.store->wait("never", in_time());
  });
  Child second([&] {
    const OpenedStore opened = open(1, 2);
    opened.store->wait("both wait", in_time());
  });
  Child idle([&] {
    const OpenedStore opened = open(kFirstNewcomer + 1, 0);
    opened.store->set("idle", std::to_string(getpid()), in_time());
    opened.store->wait("never", in_time());
  });
  Child called([&] {
    const OpenedStore opened = open(kFirstNewcomer + 2, 0);
    const pid_t others[] = {std::stoi(opened.store->get("first", in_time())),
                            std::stoi(opened.store->get("idle", in_time()))};
    opened.store->set("both wait", "", in_time());
    opened.be_rank();
    await_standby(*opened.store, "newcomer");
    for (const pid_t other : others) kill(other, SIGKILL);
    opened.store->set("at the next server", "", in_time());
  });
  EXPECT_EQ(called.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

TEST_P(Handover, ARankThatFoundNoServerInTheTimeOfACallLooksAgainInALaterOne) {
  Child first([&] { open(0, 3).store->wait("never", in_time()); });
  Child second([&] {
    const OpenedStore opened = open_with_standby(1);
    opened.store->set("here", "", in_time());
    raise(SIGSTOP);
    opened.store->wait("over", in_time());
  });
  Child third([&] {
    const OpenedStore opened = open(2, 3);
    opened.store->wait("here", in_time());
    await_stop(second.pid());
    kill(first.pid(), SIGKILL);
    const Error error = error_of([&] { opened.store->set("key", "", in(milliseconds(300))); });
    if (error.kind() != ErrorKind::timeout) _exit(2);
    kill(second.pid(), SIGCONT);
    std::this_thread::sleep_for(seconds(6));  // longer than a call looks for a server
    opened.store->set("over", "", in_time());
  });
  EXPECT_EQ(third.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

// The child keeps the places at which rank 0 listened.
TEST_P(Handover, NewcomersFindTheNextServerOnceAChildOfTheFirstHasEnded) {
  Child first([&] {
    const OpenedStore opened = open(0, 3);
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      for (;;) pause();
    }
    opened.store->set("child", std::to_string(child), in_time());
    opened.store->wait("never", in_time());
  });
  Child second([&] {
    const OpenedStore opened = open_with_standby(1);
    opened.store->wait("over", in_time());
  });
  Child third([&] {
    const OpenedStore opened = open_with_standby(2);
    const pid_t child = std::stoi(opened.store->get("child", in_time()));
    kill(first.pid(), SIGKILL);
    const bool noticed = GetParam() == Over::unix_socket;  // else once the child has ended
    if (noticed) opened.store->set("at the next server", "", in_time());
    std::this_thread::sleep_for(milliseconds(100));
    kill(child, SIGKILL);
    opened.store->set("at the next server", "", in_time());
    if (open_as_newcomer().store->get("at the next server", in_time()) != "") _exit(2);
    opened.store->set("over", "", in_time());
  });
  EXPECT_EQ(third.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

}  // namespace
}  // namespace tutti
