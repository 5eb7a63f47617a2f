// Faults in the middle of grow() and join(): what the others do then, and how soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

#include "common/log.h"
#include "growing_job.h"
#include "processes.h"
#include "rendezvous/launch/launch_environment.h"
#include "rendezvous/store/file_store.h"
#include "rendezvous/store/open_store.h"
#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Forwards to another store, and calls `before` with the key of each request.
class HeardStore final : public Store {
 public:
  using Before = std::function<void(std::string_view key)>;

  HeardStore(std::shared_ptr<Store> store, Before before)
      : store_(std::move(store)), before_(std::move(before)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    before_(key);
    store_->set(key, value, deadline);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    before_(key);
    return store_->get(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    before_(key);
    return store_->add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override {
    before_(key);
    store_->wait(key, deadline);
  }
  std::string get_unless(std::string_view key, const Unless& unless, Deadline deadline) override {
    before_(key);
    return store_->get_unless(key, unless, deadline);
  }
  void set_when_gone(std::string_view key, std::string_view value, Deadline deadline) override {
    before_(key);
    store_->set_when_gone(key, value, deadline);
  }

 private:
  const std::shared_ptr<Store> store_;
  const Before before_;
};

class MembershipFaults : public GrowingJob {
 protected:
  // Returns whether a rank asks by this key for what it needs in order to connect.
  bool is_before_connecting(std::string_view key) const {
    return key.ends_with(is_slow() ? "/addresses/0/hello/0" : "/hello/0");
  }
  // Whether each world of ranks takes a quarter of a second of processor time.
  bool is_slow() const { return std::string_view(transport_) == "ucx"; }
  // Runs a world for each of a rank's requests at which that is killed, until it lives to the end;
  // over a slow transport, for every third one and for the last ones. `run` returns whether the
  // rank was killed. Returns how many requests a rank makes that lives to the end.
  int kill_at_each_request(const std::function<bool(int requests)>& run) const {
    int step = is_slow() ? 3 : 1;
    for (int requests = 0; !HasFailure(); requests += step) {
      SCOPED_TRACE(requests);
      if (run(requests)) continue;
      if (step == 1) return requests;
      requests -= std::min(requests, step);
      step = 1;
    }
    return 0;
  }
};

// A rank asks by this key whether another one is lost, and names it at the start, too.
bool is_look(std::string_view key) { return key.ends_with("/lost/count"); }
// A newcomer is killed at each of its requests in turn, until it lives to the end. The ranks take
// in the other one soon: they wait neither for the one that ended nor for the end of their
// patience.
TEST_F(MembershipFaults, ANewcomerThatIsKilledAtAnyRequestDoesNotCostThePatience) {
  over(and_ucx(kBoth), [&] {
    const int requests = kill_at_each_request([&](int before) {
      unlink(path_.c_str());
      Sign first_ended;
      Processes ranks(4, [&](int rank) {
        if (rank < 2) {
          Communicator comm = start(rank, 2, file_);
          for (;;) {
            const auto began = steady_clock::now();
            Communicator grown = comm.grow(1, 60s);
            expect(steady_clock::now() - began < 20s, "it waited for the one that had ended");
            const bool whole = outcome_of([&] { grown.barrier(); }).empty();
            if (comm.agree(whole ? 1 : 0, 20s).flags == 1) return;
            comm = grown.shrink(20s);
          }
        }
        set_newcomers_environment();
        if (rank == 3) first_ended.wait();
        int left = before;
        const auto die = [&](std::string_view) {
          if (rank == 2 && left-- == 0) raise(SIGKILL);
        };
        const auto store = std::make_shared<HeardStore>(
            std::make_shared<FileStore>(path_, steady_clock::now() + 20s), die);
        Communicator::join(store, config()).barrier();
      });
      const std::string first = ranks.outcome(2);
      if (first.empty()) return false;
      EXPECT_EQ(first, "ended by signal 9");
      first_ended.give();
      for (const int rank : {0, 1, 3}) EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << rank;
      return true;
    });
    EXPECT_GT(requests, 4);
  });
}

/// Opens the store of a rank of three, once all have opened it.
std::shared_ptr<Store> open_with_others(int rank, int port, Sign& opened, const Config& config) {
  set_environment(rank, 3, port);
  Log log(LogLevel::error, {});
  const LaunchEnvironment launch = read_launch_environment(process_environment());
  const OpenedStore its = open_store(launch, config, steady_clock::now() + 20s, log);
  opened.give();
  opened.wait(3);
  return its.store;
}

// A rank is killed at each of its requests of the start in turn, until it lives to the end. The
// others hear at once which one it was, from the store or from the transport.
TEST_F(MembershipFaults, ARankThatIsKilledAtAnyRequestOfTheStartIsNamed) {
  over(and_ucx(kBoth), [&] {
    const int requests = kill_at_each_request([&](int before) {
      const int port = unused_port();
      Sign opened;
      Processes ranks(3, [&](int rank) {
        Config config = this->config();
        config.startup_timeout = 60s;
        int left = before;
        const auto die = [&](std::string_view) {
          if (rank == 1 && left-- == 0) raise(SIGKILL);
        };
        const auto store =
            std::make_shared<HeardStore>(open_with_others(rank, port, opened, config), die);
        const auto began = steady_clock::now();
        const std::string why =
            outcome_of([&] { Communicator::create(store, rank, 3, config).barrier(); });
        expect(why.empty() || (why.starts_with("peer_lost") && why.find("rank 1") != why.npos),
               why);
        expect(steady_clock::now() - began < 20s, "it waited: " + why);
      });
      const std::string killed = ranks.outcome(1);
      for (const int rank : {0, 2}) EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << rank;
      EXPECT_THAT(killed, AnyOf(IsEmpty(), "ended by signal 9"));
      return !killed.empty();
    });
    EXPECT_GT(requests, 5);
  });
}

// The others connect, and have looked several times whether a rank is lost.
TEST_F(MembershipFaults, ARankThatIsKilledWhileTheOthersConnectIsNamed) {
  over(and_ucx(kBoth), [&] {
    const int port = unused_port();
    Sign opened, looks;
    Processes ranks(3, [&](int rank) {
      Config config = this->config();
      config.startup_timeout = 60s;
      const auto die = [&](std::string_view key) {
        if (rank != 1 && is_look(key)) looks.give();
        if (rank != 1 || !is_before_connecting(key)) return;
        looks.wait(2 + 4);  // Each of the two names the key at the start.
        raise(SIGKILL);
      };
      const auto store =
          std::make_shared<HeardStore>(open_with_others(rank, port, opened, config), die);
      const auto began = steady_clock::now();
      const std::string why =
          outcome_of([&] { Communicator::create(store, rank, 3, config).barrier(); });
      expect(why.starts_with("peer_lost") && why.find("rank 1") != why.npos, why);
      expect(steady_clock::now() - began < 20s, "it waited: " + why);
    });
    EXPECT_EQ(ranks.outcome(1), "ended by signal 9");
    for (const int rank : {0, 2}) EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << rank;
  });
}

// Rank 1 never comes. Rank 2 waits in vain for less time than rank 0, which gets its error.
TEST_F(MembershipFaults, ARankThatHasWaitedInVainTellsTheOthersWhatItWaitedFor) {
  over(and_ucx(kBoth), [&] {
    const int port = unused_port();
    Sign opened;
    Processes ranks(3, [&](int rank) {
      Config config = this->config();
      config.startup_timeout = rank == 0 ? 60s : 1s;
      const auto store = open_with_others(rank, port, opened, config);
      if (rank == 1) return store->wait("over", steady_clock::now() + 30s);
      const auto began = steady_clock::now();
      const std::string why = outcome_of([&] { Communicator::create(store, rank, 3, config); });
      expect(why.starts_with("timeout") && why.find("1 of 3 ranks did not come") != why.npos &&
                 why.find("deadline: 1;") != why.npos,
             why);
      expect(steady_clock::now() - began < 20s, "it waited: " + why);
      if (rank == 0) store->set("over", "", steady_clock::now() + 5s);
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << rank;
  });
}

TEST_F(MembershipFaults, ARankWhoseOwnSettingsAreWrongTellsTheOthers) {
  over(kBoth, [&] {
    const int port = unused_port();
    Sign opened;
    Processes ranks(3, [&](int rank) {
      Config config = this->config();
      config.startup_timeout = 60s;
      const auto store = open_with_others(rank, port, opened, config);
      if (rank == 1) config.secret_file = "/nowhere/secret";
      if (rank == 1) config.secret.clear();
      const auto began = steady_clock::now();
      const std::string why = outcome_of([&] { Communicator::create(store, rank, 3, config); });
      expect(why.find("/nowhere/secret") != why.npos, why);
      if (rank != 1) expect(why.starts_with("peer_lost: rank 1 could not join the others: "), why);
      expect(steady_clock::now() - began < 20s, "it waited: " + why);
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << rank;
  });
}

// The ranks are in one store, and connections between rank 2 and the others fail.
TEST_F(MembershipFaults, ARankWithAnotherSecretIsToldToTheOthers) {
  over({"tcp"}, [&] {
    const int port = unused_port();
    Sign opened;
    Processes ranks(3, [&](int rank) {
      Config config = this->config();
      config.startup_timeout = 60s;
      const auto store = open_with_others(rank, port, opened, config);
      config.secret = rank == 2 ? "a secret of its own" : "the secret of the others";
      const auto began = steady_clock::now();
      const std::string why = outcome_of([&] { Communicator::create(store, rank, 3, config); });
      expect(why.starts_with("mismatch") && why.find("has another secret") != why.npos, why);
      expect(steady_clock::now() - began < 20s, "it waited: " + why);
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << rank;
  });
}

// Rank 0, which serves the store, is stopped while rank 2 connects and looks whether a rank is
// lost, until rank 2 has waited for the answer in vain and looks again.
TEST_F(MembershipFaults, AStoreThatIsSlowForSecondsDoesNotEndTheStart) {
  over(and_ucx(kBoth), [&] {
    const int port = unused_port();
    Sign opened, goes_on;
    Processes ranks(3, [&](int rank) {
      Config config = this->config();
      config.startup_timeout = 60s;
      const auto opened_store = open_with_others(rank, port, opened, config);
      const auto soon = steady_clock::now() + 20s;
      if (rank == 0) opened_store->set("process", std::to_string(getpid()), soon);
      const pid_t first = std::stoi(opened_store->get("process", soon));
      int named = 0;
      const auto stop = [&](std::string_view key) {
        if (rank == 1 && is_before_connecting(key)) goes_on.wait();
        if (rank != 2 || !is_look(key)) return;
        if (++named == 2) kill(first, SIGSTOP);
        if (named != 3) return;
        kill(first, SIGCONT);
        goes_on.give();
      };
      const auto store = std::make_shared<HeardStore>(opened_store, stop);
      const std::string outcome =
          outcome_of([&] { Communicator::create(store, rank, 3, config).barrier(); });
      if (rank == 2) kill(first, SIGCONT);
      expect(outcome.empty(), outcome);
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(MembershipFaults, AnAbortEndsAGrowOnAllRanks) {
  over(and_ucx(kBoth), [&] {
    Sign grows, ended;
    Processes ranks(2, [&](int rank) {
      Communicator comm = start(rank, 2);
      comm.barrier();
      if (rank == 1) {
        grows.wait();
        std::this_thread::sleep_for(100ms);
        comm.abort("the program says so");
        return ended.wait();
      }
      grows.give();
      const auto began = steady_clock::now();
      const std::string why = outcome_of([&] { comm.grow(1, 60s); });
      expect(why.starts_with("peer_lost") && why.find("the program says so") != std::string::npos,
             why);
      expect(steady_clock::now() - began < 20s, "at once");
      ended.give();
    });
    for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// A rank is killed at each of its requests of a grow() in turn, until it lives to the end. The
// others are told soon, and shrink and grow with the same newcomer.
TEST_F(MembershipFaults, ARankThatIsKilledAtAnyRequestOfAGrowLeavesTheOthersToGrow) {
  over(and_ucx(kBoth), [&] {
    const int requests = kill_at_each_request([&](int before) {
      unlink(path_.c_str());
      Processes ranks(4, [&](int rank) {
        if (rank == 3) return come(file_).barrier();
        set_environment(rank, 3, port_);
        int left = before;
        bool grows = false;
        const auto die = [&](std::string_view) {
          if (rank == 1 && grows && left-- == 0) raise(SIGKILL);
        };
        const auto store = std::make_shared<HeardStore>(
            std::make_shared<FileStore>(path_, rank, 3, steady_clock::now() + 20s), die);
        Communicator comm = Communicator::create(store, rank, 3, config());
        comm.barrier();
        grows = true;
        const auto began = steady_clock::now();
        for (;;) {
          std::optional<Communicator> grown;
          const std::string why = outcome_of([&] {
            grown = comm.grow(1, 60s);
            grown->barrier();
          });
          expect(why.empty() || why.starts_with("peer_lost"), why);
          expect(steady_clock::now() - began < 25s, "it waited");
          if (comm.agree(why.empty() ? 1 : 0, 20s).flags == 1) return;
          comm = grown ? grown->shrink(20s) : comm.shrink(20s);
          if (grown) return;  // it has the newcomer
        }
      });
      const std::string killed = ranks.outcome(1);
      for (const int rank : {0, 2, 3})
        EXPECT_THAT(ranks.outcome(rank),
                    AnyOf(IsEmpty(), StartsWith(rank == 3 ? "peer_lost" : "no")))
            << rank;
      EXPECT_THAT(killed, AnyOf(IsEmpty(), "ended by signal 9"));
      return !killed.empty();
    });
    EXPECT_GT(requests, 10);  // How often it looks for the newcomer depends on the machine.
  });
}

TEST_F(MembershipFaults, AGrowInVainLeavesNothingBehind) {
  over(and_ucx(kBoth), [&] {
    const auto descriptors = [] {
      const std::filesystem::directory_iterator all("/proc/self/fd");
      return std::distance(begin(all), end(all));
    };
    Processes ranks(3, [&](int rank) {
      if (rank == 2) {
        set_newcomers_environment();
        const auto die = [&](std::string_view key) {
          if (key.ends_with("/joined")) raise(SIGKILL);
        };
        const auto store = std::make_shared<HeardStore>(
            std::make_shared<FileStore>(path_, steady_clock::now() + 20s), die);
        Communicator::join(store, config()).barrier();
      }
      Communicator comm = start(rank, 2, file_);
      comm.barrier();
      const auto before = descriptors();
      const std::string why = outcome_of([&] { comm.grow(1, 4s); });
      expect(why.find("0 of 1 newcomers") != std::string::npos, why);
      expect(descriptors() == before,
             std::to_string(before) + " " + std::to_string(descriptors()) + " descriptors");
      comm.barrier();
    });
    for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// Two communicators of the same ranks grow at once, each by one of two newcomers.
TEST_F(MembershipFaults, TwoCommunicatorsThatGrowAtOnceTakeDifferentNewcomers) {
  over(and_ucx(kBoth), [&] {
    Sign grown;
    Processes ranks(4, [&](int rank) {
      if (rank >= 2) {
        Communicator comm = come(file_);
        comm.barrier();
        return grown.wait(2);
      }
      set_environment(rank, 2, port_);
      // Both have chosen whom they take in before either calls.
      const auto late = [](std::string_view key) {
        if (key.ends_with("/place")) std::this_thread::sleep_for(300ms);
      };
      const auto store = std::make_shared<HeardStore>(
          std::make_shared<FileStore>(path_, rank, 2, steady_clock::now() + 20s), late);
      Communicator first = Communicator::create(store, rank, 2, config());
      Communicator second = Communicator::create(store, rank, 2, config());
      while (store->add("tutti/newcomers", 0, steady_clock::now() + 20s) < 2)
        std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(100ms);
      const auto began = steady_clock::now();
      std::string failed;
      std::thread beside([&] { failed = outcome_of([&] { first.grow(1, 40s).barrier(); }); });
      const std::string also = outcome_of([&] { second.grow(1, 40s).barrier(); });
      beside.join();
      grown.give();
      expect(failed.empty() && also.empty(), failed + also);
      expect(steady_clock::now() - began < 15s, "neither waited for the other's newcomer");
    });
    for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(MembershipFaults, AForkedChildMakesNoProgressForItsParent) {
  over(and_ucx(kBoth), [&] {
    Processes ranks(2, [&](int rank) {
      Communicator comm = start(rank, 2);
      comm.barrier();
      float value = 1;
      if (rank == 1) return comm.all_reduce(std::span<float>(&value, 1));
      Work work = comm.all_reduce_async(std::span<float>(&value, 1));
      const pid_t child = fork();
      if (child == 0) {
        const std::string why = outcome_of([&] { comm.shrink(500ms); });
        _exit(why.starts_with("usage: shrink: this process was forked") ? 0 : 1);
      }
      int status = -1;
      waitpid(child, &status, 0);
      work.wait();
      expect(status == 0 && value == 2, "it is refused");
    });
    for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

}  // namespace
}  // namespace tutti::test
