// The report and the trace of tutti-trace, on records made by hand.
#include "trace/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tutti/types.hpp>

#include "common/text.h"
#include "trace/chrome.h"
#include "trace/watch.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kMs = 1'000'000, kSecond = 1'000 * kMs;
constexpr std::int64_t kReadAt = 100 * kSecond;

TracedOperation operation(std::uint64_t number, std::int64_t began, std::int64_t ended,
                          Collective what = Collective::all_reduce) {
  TracedOperation made;
  made.record.number = number;
  made.record.sequence = number + 1;
  made.record.kinds = static_cast<std::uint64_t>(what) | static_cast<std::uint64_t>(DataType::f32)
                                                             << 8;
  made.record.count = what == Collective::barrier ? 0 : 2;
  made.record.ended = ended < 0 ? Record::kUnderWay : 2;
  made.called = made.began = began;
  made.ended = ended < 0 ? kReadAt : ended;
  return made;
}

TracedOperation transfer(std::uint64_t kind, int peer, std::int64_t began, std::int64_t ended) {
  TracedOperation made = operation(0, began, ended);
  made.record.kinds = kind | static_cast<std::uint64_t>(DataType::f32) << 8;
  made.record.peer = peer;
  return made;
}

// A job of ranks that are a process each, on one machine unless it is moved.
struct Job {
  explicit Job(int size) {
    for (int rank = 0; rank < size; ++rank) {
      TracedProcess process;
      process.source = "process " + std::to_string(100 + rank);
      process.pid = 100 + rank;
      process.machine = process.host = "here";
      process.read_at = kReadAt;
      TracedRank traced;
      traced.identity = 77;
      traced.name = "tutti/1";
      traced.rank = traced.world_rank = rank;
      traced.size = size;
      process.ranks.push_back(traced);
      processes.push_back(process);
    }
  }
  void add(int rank, const TracedOperation& added) {
    processes[static_cast<std::size_t>(rank)].ranks[0].operations.push_back(added);
  }
  std::string report() const { return tools::report(merge(processes)); }

  std::vector<TracedProcess> processes;
};

TEST(TraceReport, NamesTheStragglerAndByHowMuchItIsLate) {
  Job job(3);
  for (std::uint64_t number = 0; number < 10; ++number) {
    const auto at = static_cast<std::int64_t>(number) * 100 * kMs;
    for (int rank = 0; rank < 3; ++rank) {
      const bool late = rank == 2 && number != 4;
      job.add(rank, operation(number, at + (late ? 30 * kMs : rank), at + 31 * kMs));
    }
  }
  const TracedJob merged = merge(job.processes);
  const Stragglers found = find_stragglers(merged.communicators[0]);
  EXPECT_EQ(found.operations, 10);
  ASSERT_FALSE(found.ranks.empty());
  EXPECT_EQ(found.ranks[0].rank, 2);
  EXPECT_EQ(found.ranks[0].last, 10);
  EXPECT_THAT(job.report(),
              AllOf(HasSubstr("Straggler: rank 2 entered last in 10 of 10 operations, 27 ms later"),
                    HasSubstr("30 ms at most (#0)"), Not(HasSubstr("Straggler: rank 0"))));
}

TEST(TraceReport, CallsNobodyAStragglerWhereAllComeAtTheSameTime) {
  Job job(2);
  for (std::uint64_t number = 0; number < 10; ++number)
    for (int rank = 0; rank < 2; ++rank)
      job.add(rank, operation(number, static_cast<std::int64_t>(number) * kMs + rank,
                              static_cast<std::int64_t>(number) * kMs + 500));
  EXPECT_THAT(job.report(), AllOf(HasSubstr("No straggler in the last 10 operations"),
                                  Not(HasSubstr("Straggler")), Not(HasSubstr("waits"))));
}

// Returns a job of operations, each of which the rank enters last that `who` returns, 5 ms late.
template <typename Who>
Job late_by_turns(int ranks, std::uint64_t operations, Who who) {
  Job job(ranks);
  for (std::uint64_t number = 0; number < operations; ++number)
    for (int rank = 0; rank < ranks; ++rank)
      job.add(rank, operation(number,
                              static_cast<std::int64_t>(number) * 20 * kMs +
                                  (rank == who(static_cast<int>(number)) ? 5 * kMs : rank),
                              static_cast<std::int64_t>(number) * 20 * kMs + 6 * kMs));
  return job;
}

TEST(TraceReport, CallsNobodyAStragglerWhereAllAreLateByTurns) {
  for (const int ranks : {2, 4, 100}) {
    Job job = late_by_turns(ranks, 100, [=](int number) { return number * 7 % ranks; });
    job.processes[1].ranks[0].operations[50].began += 25 * kMs;
    EXPECT_THAT(job.report(), HasSubstr("No straggler in the last 100 operations; the latest was "
                                        "rank 1 in #50, "));
  }
}

TEST(TraceReport, NamesAllRanksThatStandOut) {
  const Job job =
      late_by_turns(4, 100, [](int number) { return number % 10 == 0 ? 0 : 1 + number % 2; });
  const std::string report = job.report();
  EXPECT_THAT(report, AllOf(HasSubstr("Straggler: rank 1 entered last in 40 of 100"),
                            HasSubstr("Straggler: rank 2 entered last in 50 of 100"),
                            Not(HasSubstr("Straggler: rank 0"))));
}

TEST(TraceReport, SaysWhichRanksCalledDifferentThingsUnderTheSameNumber) {
  Job job(3);
  for (int rank = 0; rank < 3; ++rank) {
    job.add(rank, operation(0, 0, kMs));
    job.add(rank,
            operation(1, 2 * kMs, -1, rank == 1 ? Collective::barrier : Collective::all_reduce));
  }
  const auto mismatch = find_mismatch(merge(job.processes).communicators[0]);
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->number, 1u);
  ASSERT_EQ(mismatch->calls.size(), 2u);
  EXPECT_THAT(mismatch->calls[0].ranks, ElementsAre(0, 2));
  EXPECT_THAT(mismatch->calls[1].ranks, ElementsAre(1));
  EXPECT_THAT(job.report(),
              AllOf(HasSubstr("Mismatch: under number 1"), HasSubstr("rank 1: barrier"),
                    HasSubstr("ranks 0, 2: all_reduce(2 x f32, sum)")));
}

TEST(TraceReport, SaysWhichRankNeverCame) {
  Job job(3);
  for (int rank = 0; rank < 3; ++rank) job.add(rank, operation(0, 0, kMs));
  for (const int rank : {0, 2}) job.add(rank, operation(1, 60 * kSecond, -1));
  EXPECT_THAT(job.report(),
              AllOf(HasSubstr("Never came: rank 1 has not called #1 all_reduce(2 x f32, sum)"),
                    HasSubstr("rank 0 waits for rank 1 in #1"), HasSubstr("ends at rank 1"),
                    HasSubstr("for 40 s"), Not(HasSubstr("Deadlock"))));
}

TEST(TraceReport, CallsARankThatGoesOnBehindAndNotAbsent) {
  Job job(4);
  for (int rank = 0; rank < 4; ++rank) job.add(rank, operation(0, 0, kMs));
  // Ranks 1 and 2 have ended something a moment ago, and rank 3 has not.
  for (const int rank : {0, 1, 2}) job.add(rank, operation(1, 60 * kSecond, kReadAt - 5 * kMs));
  job.add(0, operation(2, kReadAt - 4 * kMs, kReadAt - 3 * kMs));
  job.add(0, operation(3, kReadAt - 2 * kMs, -1));
  job.processes[3].read_at = kReadAt + kSecond;
  EXPECT_THAT(job.report(),
              AllOf(HasSubstr("Behind: ranks 1, 2 are 2 operations before #3 all_reduce"),
                    HasSubstr("Never came: rank 3 has not called #3")));
}

TEST(TraceReport, CallsARankBehindThatWasReadBeforeTheOthersWentOn) {
  Job job(2);
  job.add(0, operation(5, 10 * kSecond, 11 * kSecond));
  job.add(1, operation(6, kReadAt - kMs, -1));
  EXPECT_THAT(job.report(), AllOf(HasSubstr("Behind: rank 0 is 1 operation before #6 all_reduce(2 "
                                            "x f32, sum), and goes on"),
                                  Not(HasSubstr("Never came"))));
}

TEST(TraceReport, AddsUpLatenessThatIsBeyondAllBounds) {
  constexpr std::int64_t kLong = 4 * kSecond * kSecond;
  Job job(2);
  for (std::uint64_t number = 0; number < 3; ++number) {
    job.add(0, operation(number, 0, kMs));
    job.add(1, operation(number, kLong, kLong));
  }
  const Stragglers found = find_stragglers(merge(job.processes).communicators[0]);
  ASSERT_EQ(found.ranks.size(), 1u);
  EXPECT_EQ(found.ranks[0].total, std::numeric_limits<std::int64_t>::max());
}

TEST(TraceReport, SaysOfWhichRanksThereIsNoRecord) {
  Job job(3);
  for (int rank = 0; rank < 3; ++rank) job.add(rank, operation(0, 0, -1));
  job.processes.erase(job.processes.begin() + 1);
  EXPECT_THAT(job.report(),
              AllOf(HasSubstr("rank 1: no record"), HasSubstr("rank 2 waits for rank 1"),
                    HasSubstr("there is no record of it")));
}

TEST(TraceReport, FindsACycleOfReceives) {
  Job job(4);
  for (int rank = 0; rank < 3; ++rank)
    job.add(rank, transfer(Record::kReceive, (rank + 1) % 3, kSecond, -1));
  job.add(3, transfer(Record::kReceive, 0, kSecond, -1));  // it waits for the cycle, outside of it
  const TracedJob merged = merge(job.processes);
  const auto cycle = find_cycle(find_waits(merged));
  ASSERT_EQ(cycle.size(), 3u);
  for (const Wait& wait : cycle) EXPECT_EQ(wait.to, (wait.from + 1) % 3);
  EXPECT_THAT(job.report(), HasSubstr("Deadlock: rank 0 waits for rank 1, rank 1 waits for rank 2, "
                                      "rank 2 waits for rank 0."));
}

TEST(TraceReport, FindsACycleOverTwoCommunicators) {
  Job job(2);
  for (int rank = 0; rank < 2; ++rank) {
    TracedRank other = job.processes[static_cast<std::size_t>(rank)].ranks[0];
    other.identity = 78;
    other.name = "tutti/1.1";
    job.processes[static_cast<std::size_t>(rank)].ranks.push_back(other);
    // Rank 0 calls the first communicator, and rank 1 the second.
    job.processes[static_cast<std::size_t>(rank)]
        .ranks[static_cast<std::size_t>(rank)]
        .operations.push_back(operation(0, kSecond, -1));
  }
  EXPECT_EQ(find_cycle(find_waits(merge(job.processes))).size(), 2u);
}

// Rank 1 is stopped in a call that rank 0, whose message it has not read, has ended.
TEST(TraceReport, FindsNoCycleWhereTheRankThatIsWaitedForHasEndedTheOperation) {
  Job job(2);
  TracedOperation last = operation(3, kSecond, -1);
  last.record.waits_for = 0;
  job.add(1, last);
  job.add(0, operation(3, 2 * kSecond, 3 * kSecond));
  job.add(0, operation(4, 3 * kSecond, -1));
  job.processes[1].stopped = true;
  EXPECT_EQ(find_waits(merge(job.processes)).size(), 1u);
  EXPECT_THAT(job.report(), AllOf(Not(HasSubstr("Deadlock")), HasSubstr("ends at rank 1")));
}

// A long message moves between two ranks, and a third one waits for another.
TEST(TraceReport, FindsNoCycleInAMessageThatMoves) {
  Job job(3);
  job.add(0, transfer(Record::kSend, 1, kSecond, -1));
  job.add(1, transfer(Record::kReceive, -1, kSecond, -1));
  job.add(2, transfer(Record::kReceive, 0, kSecond, -1));
  EXPECT_EQ(find_waits(merge(job.processes)).size(), 1u);
  // Two that send to each other are one.
  Job both(2);
  for (int rank = 0; rank < 2; ++rank)
    both.add(rank, transfer(Record::kSend, 1 - rank, kSecond, -1));
  EXPECT_THAT(both.report(), HasSubstr("Deadlock"));
}

TEST(TraceReport, ShowsNoTwoCollectivesOfARankAtOnce) {
  Job job(1);
  for (std::uint64_t number = 0; number < 3; ++number) {
    TracedOperation soon = operation(number, static_cast<std::int64_t>(number) * 300, 2000);
    soon.ended = soon.began + TracedOperation::kSoonNs;
    job.add(0, soon);
    job.add(0, transfer(Record::kSend, 0, soon.began + 100, soon.began + 5000));
  }
  std::vector<double> lengths;
  const auto trace = nlohmann::json::parse(to_chrome(merge(job.processes)));
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X") lengths.push_back(event["dur"]);
  EXPECT_THAT(lengths, ElementsAre(testing::DoubleNear(0.3, 1e-6), testing::DoubleNear(0.3, 1e-6),
                                   testing::DoubleNear(2, 1e-6)));
}

TEST(TraceReport, FindsNoCycleInAChain) {
  Job job(3);
  for (int rank = 0; rank < 2; ++rank)
    job.add(rank, transfer(Record::kReceive, rank + 1, kSecond, -1));
  const TracedJob merged = merge(job.processes);
  EXPECT_EQ(find_waits(merged).size(), 2u);
  EXPECT_TRUE(find_cycle(find_waits(merged)).empty());
  EXPECT_THAT(job.report(), HasSubstr("All that waits there ends at rank 2"));
}

TEST(TraceReport, SaysForWhomARankWaitsLast) {
  Job job(2);
  for (int rank = 0; rank < 2; ++rank) job.add(rank, operation(0, kSecond, -1));
  job.processes[0].ranks[0].operations[0].record.waits_for = 1;
  job.processes[1].stopped = true;
  EXPECT_THAT(job.report(),
              AllOf(HasSubstr("in #0 all_reduce(2 x f32, sum) for 99 s, waits for rank 1"),
                    HasSubstr("the process is stopped by a signal")));
}

// The other machine's steady clock is an hour behind, and its calendar is wrong by 3 ms.
TEST(TraceReport, ComparesTheClocksOfMachinesByWhatAllRanksEnded) {
  Job job(2);
  constexpr std::int64_t kBehind = 3600 * kSecond;
  for (std::uint64_t number = 0; number < 5; ++number) {
    const auto at = 4000 * kSecond + static_cast<std::int64_t>(number) * kSecond;
    job.add(0, operation(number, at, at + 50'000));
    job.add(1, operation(number, at + 10'000 - kBehind, at + 60'000 - kBehind));
  }
  job.processes[1].machine = job.processes[1].host = "there";
  job.processes[1].calendar = kBehind + 3 * kMs;
  const TracedJob merged = merge(job.processes);
  const ClockOffset& there = merged.clocks.at("there");
  ASSERT_TRUE(there.exact_to);
  EXPECT_LE(*there.exact_to, 60'000);
  EXPECT_LE(std::abs(there.ahead - kBehind), *there.exact_to);
  EXPECT_THAT(job.report(), AllOf(HasSubstr("there: exact to"), HasSubstr("No straggler")));
}

TEST(TraceReport, SaysWhereTheCalendarIsAllThatIsKnown) {
  Job job(2);
  job.add(0, operation(0, 0, -1));
  job.processes[1].machine = job.processes[1].host = "there";
  EXPECT_THAT(job.report(), HasSubstr("there: by its calendar alone"));
}

TEST(TraceReport, SaysWhatFailedAndWhatIsClosed) {
  Job job(2);
  job.processes[0].ranks[0].state = RingState::failed;
  job.processes[0].ranks[0].failure = "rank 1 is lost";
  job.processes[1].ranks[0].state = RingState::closed;
  EXPECT_THAT(job.report(),
              AllOf(HasSubstr("rank 0: failed: rank 1 is lost"), HasSubstr("rank 1: closed")));
}

TEST(TraceReport, SaysThatARankThatHasFailedIsInShrink) {
  Job job(2);
  TracedRank& rank = job.processes[0].ranks[0];
  rank.state = RingState::failed;
  rank.failure = "rank 1 is lost";
  rank.store_call = StoreCall::shrink;
  rank.store_call_began = kReadAt - 3 * kSecond;
  rank.store_call_waits_for = 1;
  EXPECT_THAT(job.report(),
              AllOf(HasSubstr("in shrink for 3 s, waits for rank 1; it had failed: rank 1 is lost"),
                    HasSubstr("rank 0 waits for rank 1 in shrink, for 3 s")));
}

TEST(TraceReport, ShowsNoNegativeTimesOfCallsThatBeganOrEndedWhileRecordsWereRead) {
  Job job(2);
  job.add(0, operation(0, kReadAt - kMs, kReadAt + 65 * kMs));
  job.add(1, operation(0, kReadAt + 65 * kMs, -1));
  EXPECT_THAT(list(job.processes), AllOf(HasSubstr("which ended 0 ns ago"), HasSubstr("for 0 ns")));
}

TEST(TraceReport, AcceptsRecordsThatMeanNothing) {
  Job job(1);
  TracedOperation strange = operation(0, 0, kMs);
  strange.record.kinds = 0xdeadbeefcafebabe;
  strange.record.outcome = 99;
  job.add(0, strange);
  EXPECT_THAT(job.report(), HasSubstr("does not know"));
  EXPECT_FALSE(nlohmann::json::parse(to_chrome(merge(job.processes))).empty());
}

TEST(TraceChrome, HasAnEventForEachOperationInTheUnitsThatViewersExpect) {
  Job job(2);
  job.add(0, operation(0, 5 * kMs, 7 * kMs));
  job.add(1, operation(0, 6 * kMs, 7 * kMs));
  job.add(1, transfer(Record::kSend, 0, 8 * kMs, 9 * kMs));
  const auto trace = nlohmann::json::parse(to_chrome(merge(job.processes)));
  int complete = 0, begins = 0, ends = 0, named = 0;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string kind = event.at("ph");
    ASSERT_TRUE(event.at("pid").is_number_integer());
    ASSERT_TRUE(event.at("tid").is_number_integer());
    complete += kind == "X";
    begins += kind == "b";
    ends += kind == "e";
    named += event.at("name") == "process_name";
    if (kind == "X" && event.at("pid") == 0) {
      EXPECT_EQ(event.at("ts"), 0.0);
      EXPECT_EQ(event.at("dur"), 2000.0);
      EXPECT_EQ(event.at("name"), "all_reduce(2 x f32, sum)");
    }
    if (kind == "b") {
      EXPECT_EQ(event.at("ts"), 3000.0);
    }
  }
  EXPECT_EQ(complete, 2);
  EXPECT_EQ(begins, 1);
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(named, 2);
}

TEST(TraceWatch, CountsOnlyWhatIsNew) {
  Job job(2);
  job.add(0, operation(0, 5 * kMs, 27 * kMs));
  job.add(1, operation(0, 26 * kMs, 27 * kMs));
  job.processes[0].ranks[0].operations[0].record.waits_for = 1;
  Watch watch;
  EXPECT_THAT(watch.look(job.processes),
              AllOf(HasSubstr("1 operations"), HasSubstr("rank 1     last in 1"),
                    HasSubstr("rank 0 for 1     waited in 1")));
  EXPECT_THAT(watch.look(job.processes),
              AllOf(HasSubstr("0 operations"), Not(HasSubstr("waited"))));
}

TEST(TraceText, ShowsDurationsAndRanks) {
  EXPECT_EQ(show_duration(17), "17 ns");
  EXPECT_EQ(show_duration(1'500), "1.5 us");
  EXPECT_EQ(show_duration(20 * kMs), "20 ms");
  EXPECT_EQ(show_duration(3'200 * kMs), "3.2 s");
  EXPECT_EQ(show_duration(123 * kSecond), "123 s");
  EXPECT_EQ(show_ranks({3}), "rank 3");
  EXPECT_EQ(show_ranks({0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7, 8");
}

}  // namespace
}  // namespace tutti::tools
