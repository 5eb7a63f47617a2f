// Reports of stalled operations, which are written to the log before the deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <vector>

#include "over_transports.h"
#include "processes.h"
#include "runtime/diagnosis/stall_watch.h"
#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

TEST(StallWatch, IsDueAfterTheFirstTimeAndThenEachTimeTheAgeHasDoubled) {
  const TimePoint start{1h};
  StallWatch watch(10s);
  EXPECT_EQ(watch.due(7, start), start + 10s);
  EXPECT_EQ(watch.due(7, start + 3s), start + 10s);
  watch.reported(start + 10s);
  EXPECT_EQ(watch.due(7, start + 10s), start + 20s);
  watch.reported(start + 21s);
  EXPECT_EQ(watch.due(7, start + 21s), start + 42s);
  EXPECT_EQ(watch.age(start + 42s), 42s);
  EXPECT_EQ(watch.due(8, start + 50s), start + 60s);
  EXPECT_TRUE(watch.put_off(StallWatch::For::news));
  EXPECT_EQ(watch.due(8, start + 60s), start + 61s);
  EXPECT_FALSE(watch.put_off(StallWatch::For::news));
  EXPECT_TRUE(watch.put_off(StallWatch::For::another));
  EXPECT_EQ(watch.due(8, start + 61s), start + 63s);
  EXPECT_FALSE(watch.put_off(StallWatch::For::another));
  EXPECT_EQ(StallWatch(0s).due(1, start), TimePoint::max());
}

// Collects what all ranks of one process log.
class Heard {
 public:
  Config config(std::string transports) {
    Config config = quick_config(std::move(transports));
    // In this time all other ranks call, and report for which rank they wait.
    config.stall = 1s;
    config.log_sink = [this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      if (level == LogLevel::warn) lines_.emplace_back(line);
      told_.notify_all();
    };
    return config;
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  void wait_for_a_line() {
    std::unique_lock lock(mutex_);
    told_.wait(lock, [this] { return !lines_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable told_;
  std::vector<std::string> lines_;  // guarded by mutex_
};

class Stalls : public OverTransports {
 protected:
  const std::vector<const char*> kAll{"local", "shm", "tcp"};

  // Rank 2 comes late to the second all_reduce; the others wait as `wait` does.
  std::vector<std::string> heard(
      const std::function<void(Communicator&, std::span<float>)>& wait) const {
    Heard heard;
    const auto outcomes = run_ranks(3, heard.config(transport_), [&](Communicator& comm) {
      std::vector<float> data(4);
      comm.all_reduce(std::span(data), Op::sum);
      if (comm.rank() == 2) {
        heard.wait_for_a_line();
        comm.all_reduce(std::span(data), Op::max);
      } else {
        wait(comm, data);
      }
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
    return heard.lines();
  }
  static testing::Matcher<const std::vector<std::string>&> one_report() {
    return ElementsAre(AllOf(
        // Rank 1 leaves it to rank 0, unless that has no time for it on a busy machine.
        testing::ContainsRegex("rank [01] of 3: operation #1 all_reduce.4 x f32, max. has been "
                               "under way for"),
        AnyOf(AllOf(HasSubstr("\n  rank 0 is in it and waits for rank "),
                    HasSubstr("\n  rank 1 is in it and waits for rank ")),
              HasSubstr("\n  ranks 0, 1: each is in it and waits for rank 2")),
        HasSubstr("\n  rank 2 has not called it (its last call is operation #0 "
                  "all_reduce(4 x f32, sum))")));
  }
};

TEST_F(Stalls, ABlockedCallIsToldOnceByOneRankAndEndsWell) {
  over(kAll, [&] {
    EXPECT_THAT(
        heard([](Communicator& comm, std::span<float> data) { comm.all_reduce(data, Op::max); }),
        one_report());
  });
}

TEST_F(Stalls, RanksOfWhichTheSameIsSaidAreNamedTogether) {
  over(kAll, [&] {
    Heard heard;
    const auto outcomes = run_ranks(5, heard.config(transport_), [&](Communicator& comm) {
      if (comm.rank() != 0) heard.wait_for_a_line();
      comm.barrier();
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
    // Where the machine is busy, a second report may follow while the others are on their way.
    EXPECT_THAT(heard.lines().front(),
                HasSubstr("\n  ranks 1-4: each has not called it (nor anything before)"));
  });
}

TEST_F(Stalls, AnAsynchronousCallIsToldWhileTheProgramComputes) {
  over(kAll, [&] {
    EXPECT_THAT(heard([](Communicator& comm, std::span<float> data) {
                  Work work = comm.all_reduce_async(data, Op::max);
                  // The background threads need the processor.
                  while (!work.done()) std::this_thread::yield();
                }),
                one_report());
  });
}

TEST_F(Stalls, AMessageThatDoesNotComeIsTold) {
  over(kAll, [&] {
    Heard heard;
    const auto outcomes = run_ranks(2, heard.config(transport_), [&](Communicator& comm) {
      float data = 0;
      if (comm.rank() == 0) {
        comm.recv(std::span(&data, 1), 1, 7);
      } else {
        heard.wait_for_a_line();
        comm.send(std::span(&data, 1), 0, 7);
      }
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
    EXPECT_THAT(
        heard.lines(),
        ElementsAre(AllOf(HasSubstr("rank 0 of 2: messages have been under way for"),
                          HasSubstr("\n  recv(1 x f32) from rank 1 with tag 7: rank 1 has sent "
                                    "no such message"))));
  });
}

TEST_F(Stalls, NothingIsToldWhereThatIsNotWanted) {
  over(kAll, [&] {
    Heard heard;
    Config config = heard.config(transport_);
    config.stall = 0ms;
    const auto outcomes = run_ranks(2, config, [&](Communicator& comm) {
      // The test is about this time, in which nothing may be reported.
      if (comm.rank() == 1) std::this_thread::sleep_for(500ms);
      comm.barrier();
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
    EXPECT_THAT(heard.lines(), IsEmpty());
  });
}

// The lowest rank would report, but it is stopped, so the next rank does, or on a busy machine the
// last one.
TEST(StallProcesses, AFrozenRankIsToldByAnother) {
  const int port = unused_port();
  Sign reported_or_failed;
  Processes ranks(3, [&](int rank) {
    set_environment(rank, 3, port);
    Config config = quick_config();
    config.stall = 300ms;
    std::string reported;
    config.log_sink = [&](LogLevel, std::string_view line) {
      reported += line;
      if (rank != 0 && line.find("operation #1") != line.npos) reported_or_failed.give();
    };
    try {
      Communicator comm = Communicator::from_env(config);
      comm.barrier();
      if (rank == 0) raise(SIGSTOP);
      comm.barrier();
    } catch (...) {
      reported_or_failed.give();
      throw;
    }
    if (rank != 0 && !reported.empty()) throw std::runtime_error(reported);
  });
  reported_or_failed.wait();
  ranks.signal(0, SIGCONT);
  EXPECT_THAT(
      ranks.outcome(1) + ranks.outcome(2),
      AllOf(HasSubstr("operation #1 barrier"), HasSubstr("rank 0"), HasSubstr("not called it")));
}

}  // namespace
}  // namespace tutti::test
