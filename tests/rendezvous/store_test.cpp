// Tests that every kind of store must pass.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/store/file_store.h"
#include "rendezvous/store/key_table.h"
#include "rendezvous/store/memory_store.h"
#include "venue.h"

namespace tutti {
namespace {

using testing::HasSubstr;

/// Two ranks of one job.
struct TwoRanks {
  std::shared_ptr<StoreServer> server;  // outlives the ranks; null for a store without a server
  std::shared_ptr<Store> first, second;
};

TwoRanks memory_ranks() {
  const auto store = std::make_shared<MemoryStore>();
  return {nullptr, store, store};
}

TwoRanks unix_ranks() {
  const JobAddress job = job_of(2);
  const auto server = std::make_shared<StoreServer>(job, at_unix_socket(job));
  return {server, join(job, 0), join(job, 1)};
}

TwoRanks tcp_ranks() {
  Venue venue(ListenerKind::tcp4, 2);
  const std::shared_ptr<StoreServer> server = venue.serve();
  return {server, venue.join(0), venue.join(1)};
}

TwoRanks file_ranks() {
  const std::string path = testing::TempDir() + fmt::format("tutti-store-{}", job_of(2).port);
  return {nullptr, std::make_shared<FileStore>(path, 0, 2, in_time()),
          std::make_shared<FileStore>(path, 1, 2, in_time())};
}

struct Kind {
  std::string name;
  TwoRanks (*make)();
};

class AnyStore : public testing::TestWithParam<Kind> {
 protected:
  const TwoRanks ranks_ = GetParam().make();
  Store& first_ = *ranks_.first;
  Store& second_ = *ranks_.second;
};

INSTANTIATE_TEST_SUITE_P(All, AnyStore,
                         testing::Values(Kind{"MemoryStore", memory_ranks},
                                         Kind{"UnixSocket", unix_ranks},
                                         Kind{"TcpSocket", tcp_ranks}, Kind{"File", file_ranks}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(AnyStore, GetsOnOneRankWhatAnotherHasSet) {
  first_.set("key", "value", in_time());
  EXPECT_EQ(second_.get("key", in_time()), "value");
}

TEST_P(AnyStore, KeepsTheLastOfTwoValues) {
  first_.set("key", "old", in_time());
  second_.set("key", "new", in_time());
  EXPECT_EQ(first_.get("key", in_time()), "new");
}

TEST_P(AnyStore, WaitsForAKeyUntilAnotherRankSetsIt) {
  std::thread waiter([&] { EXPECT_EQ(second_.get("late", in_time()), "here"); });
  first_.set("late", "here", in_time());
  waiter.join();
  second_.wait("late", in_time());
}

TEST_P(AnyStore, EndsAWaitWithTheTextUnderAnotherKey) {
  std::thread waiter([&] {
    const Error error = error_of([&] { second_.get_unless("late", {{"lost"}}, in_time()); });
    EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
    EXPECT_THAT(error.what(), HasSubstr("rank 7 has ended"));
  });
  std::thread another(
      [&] { EXPECT_EQ(second_.get_unless("late", {{"others"}}, in_time()), "here"); });
  first_.set("lost", "rank 7 has ended", in_time());
  waiter.join();
  const Error later = error_of([&] { first_.get_unless("late", {{"lost"}}, in_time()); });
  EXPECT_EQ(later.kind(), ErrorKind::peer_lost);
  first_.set("late", "here", in_time());
  another.join();
  EXPECT_EQ(first_.get_unless("late", {{"lost"}}, in_time()), "here");
  EXPECT_EQ(
      error_of([&] { first_.get_unless("never", {{"others"}}, in(milliseconds(20))); }).kind(),
      ErrorKind::timeout);
}

TEST_P(AnyStore, EndsAWaitByAnyOfSeveralKeys) {
  std::vector<std::thread> waiters;
  for (const std::string ends : {"a", "b", ""})
    waiters.emplace_back([this, ends] {
      const Unless unless{{"neither", ends + "lost", ends + "lost"}};
      const Error error = error_of([&] { second_.get_unless("late", unless, in_time()); });
      EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
      EXPECT_THAT(error.what(), HasSubstr("by " + ends + "lost"));
    });
  for (const std::string ends : {"b", "", "a"})
    first_.set(ends + "lost", "by " + ends + "lost", in_time());
  for (std::thread& waiter : waiters) waiter.join();
}

TEST_P(AnyStore, EndsAWaitThatIsGivenUpAndNoOther) {
  std::atomic<bool> given_up{false};
  const Unless unless{{"lost"}, [&] { return given_up.load(); }};
  std::thread other([&] { EXPECT_EQ(second_.get("late", in_time()), "here"); });
  std::thread waiter([&] {
    const Error error = error_of([&] { second_.get_unless("late", unless, in_time()); });
    EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
    EXPECT_THAT(error.what(), HasSubstr("the wait for 'late' was given up"));
  });
  given_up = true;
  waiter.join();
  first_.set("late", "here", in_time());
  other.join();
}

TEST_P(AnyStore, RefusesAValueForItsEndThatItCouldNotSetThen) {
  if (ranks_.server == nullptr) GTEST_SKIP() << "this store does not notice the end of a rank";
  const Error error =
      error_of([&] { first_.set_when_gone("key", std::string(1025, 'x'), in_time()); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_EQ(first_.add("number", 1, in_time()), 1);
}

TEST_P(AnyStore, LetsOneThreadSetWhatAnotherOfTheSameRankWaitsFor) {
  std::thread waiter([&] { EXPECT_EQ(first_.get("mine", in_time()), "here"); });
  first_.set("mine", "here", in_time());
  waiter.join();
}

TEST_P(AnyStore, NamesTheKeyThatNobodySetBeforeTheDeadline) {
  const Error error = error_of([&] { first_.get("hello/3", in(milliseconds(20))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("hello/3"));
}

TEST_P(AnyStore, CanBeUsedOnAfterACallThatMissedItsDeadline) {
  for (int i = 0; i < 300; ++i)  // These are more keys than one rank may wait for at once.
    EXPECT_THROW(first_.wait("never", in(milliseconds(0))), Error);
  second_.set("never", "after all", in_time());
  EXPECT_EQ(first_.get("never", in_time()), "after all");
}

TEST_P(AnyStore, AddsFromManyThreadsWithoutLosingOne) {
  constexpr int kThreads = 8, kEach = 100;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) (t % 2 == 0 ? first_ : second_).add("sum", 1, in_time());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first_.add("sum", 0, in_time()), kThreads * kEach);
  EXPECT_EQ(second_.get("sum", in_time()), std::to_string(kThreads * kEach));
}

TEST_P(AnyStore, ReadsANumberByAddingNothing) {
  EXPECT_EQ(first_.add("sum", 0, in_time()), 0);
  EXPECT_EQ(error_of([&] { second_.wait("sum", in(milliseconds(20))); }).kind(),
            ErrorKind::timeout);
  first_.add("sum", 5, in_time());
  EXPECT_EQ(second_.add("sum", 0, in_time()), 5);
  first_.set("text", "no number", in_time());
  EXPECT_EQ(error_of([&] { second_.add("text", 0, in_time()); }).kind(), ErrorKind::usage);
}

TEST_P(AnyStore, WakesAWaiterByAnAddition) {
  std::thread waiter([&] { second_.wait("count", in_time()); });
  first_.add("count", -1, in_time());
  waiter.join();
}

TEST_P(AnyStore, RefusesToAddToWhatIsNoNumber) {
  first_.set("text", "12 apples", in_time());
  const Error error = error_of([&] { first_.add("text", 1, in_time()); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_THAT(error.what(), HasSubstr("12 apples"));
}

TEST_P(AnyStore, RefusesASumThatDoesNotFit) {
  first_.add("most", INT64_MAX, in_time());
  EXPECT_EQ(error_of([&] { first_.add("most", 1, in_time()); }).kind(), ErrorKind::usage);
  EXPECT_EQ(first_.add("most", 0, in_time()), INT64_MAX);
}

TEST_P(AnyStore, TakesKeysAndValuesOfAnyBytesUpToTheirLimits) {
  std::string key(kMaxKeyBytes, '\0'), value(kMaxValueBytes, '\xff');
  for (std::size_t i = 0; i < value.size(); i += 7) value[i] = static_cast<char>(i);
  first_.set(key, value, in_time());
  EXPECT_TRUE(second_.get(key, in_time()) == value);
  first_.set("", "", in_time());
  EXPECT_EQ(second_.get("", in_time()), "");
}

TEST_P(AnyStore, RefusesAKeyOrValueBeyondItsLimit) {
  const std::string key(kMaxKeyBytes + 1, 'k'), value(kMaxValueBytes + 1, 'v');
  EXPECT_EQ(error_of([&] { first_.get(key, in_time()); }).kind(), ErrorKind::usage);
  EXPECT_EQ(error_of([&] { first_.add(key, 1, in_time()); }).kind(), ErrorKind::usage);
  const Error error = error_of([&] { first_.set("key", value, in_time()); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_THAT(error.what(), HasSubstr("1048576"));
}

TEST_P(AnyStore, HoldsManyKeys) {
  constexpr int kKeys = 2000;
  for (int i = 0; i < kKeys; ++i) first_.set(fmt::format("k{}", i), std::to_string(i), in_time());
  for (int i = kKeys; i-- > 0;)
    EXPECT_EQ(second_.get(fmt::format("k{}", i), in_time()), std::to_string(i));
}

TEST_P(AnyStore, MovesLargeValuesBothWaysAtOnce) {
  const std::string value(kMaxValueBytes, 'v');
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Store& store = t % 2 == 0 ? first_ : second_;
      const std::string mine = std::to_string(t), theirs = std::to_string(t ^ 1);
      for (int i = 0; i < 4; ++i) {
        store.set(mine + std::to_string(i), value, in_time());
        EXPECT_EQ(store.get(theirs + std::to_string(i), in_time()).size(), value.size());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti
