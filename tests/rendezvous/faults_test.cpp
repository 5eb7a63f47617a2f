// Tests of servers that are killed, freeze or linger, of processes that fork, and of descriptors
// that must not leak.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/store/key_table.h"
#include "rendezvous/store/memory_store.h"
#include "stranger.h"
#include "test_job.h"

namespace tutti {
namespace {

using testing::HasSubstr;

class AStoreOverSockets : public AtAnyListener {};
INSTANTIATE_TEST_SUITE_P(All, AStoreOverSockets, kAllListeners, listener_name);

/// The body of a process that hosts a store until it is killed.
std::function<void()> hosting(Venue& venue) {
  return [&venue] {
    const auto server = venue.serve();
    pause();
  };
}

TEST_P(AStoreOverSockets, LosesItsPeerAtOnceWhenTheServerIsKilledDuringAGet) {
  Venue venue(GetParam(), 3);
  Child server(hosting(venue));
  venue.close();  // only the server has the listener now
  const auto store = venue.join(1), other = venue.join(2);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i)
    waiters.emplace_back([&] {
      const Error error = error_of([&] { store->get("never", in_time()); });
      EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
      EXPECT_THAT(error.what(), HasSubstr("rank 0"));
    });
  other->set("key", "value", in_time());
  server.end(SIGKILL);
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(error_of([&] { store->set("key", "", in_time()); }).kind(), ErrorKind::peer_lost);
  EXPECT_EQ(error_of([&] { other->add("sum", 1, in_time()); }).kind(), ErrorKind::peer_lost);
}

TEST_P(AStoreOverSockets, TellsThoseWhoWaitThatARankHasLeftWithoutSettingAKey) {
  Venue venue(GetParam(), 4);
  const auto server = venue.serve();
  const auto store = venue.join(1);
  auto good = venue.join(2), bad = venue.join(3);
  good->set("key", "value", in_time());
  good.reset();
  EXPECT_EQ(error_of([&] { store->get("never", in(milliseconds(50))); }).kind(),
            ErrorKind::timeout);
  std::thread waiter([&] {
    const Error error = error_of([&] { store->get("never", in_time()); });
    EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
    EXPECT_THAT(error.what(), HasSubstr("rank 1: rank 3 has left the store"));
  });
  bad->add("here", 1, in_time());
  bad.reset();  // the server sees what it sees when the process is killed
  waiter.join();
  EXPECT_EQ(error_of([&] { store->wait("never", in_time()); }).kind(), ErrorKind::peer_lost);
  EXPECT_EQ(store->get("key", in_time()), "value");
}

TEST_P(AStoreOverSockets, NamesTheRankThatLeftFirstToThoseWhoAskLate) {
  Venue venue(GetParam(), 4);
  const auto server = venue.serve();
  const auto store = venue.join(1);
  auto first = venue.join(2), second = venue.join(3);
  first->add("here", 1, in_time());
  second->add("here", 1, in_time());
  const auto told = [&] { return error_of([&] { store->get("never", in_time()); }); };
  std::thread leaves([&] { first.reset(); });
  EXPECT_THAT(told().what(), HasSubstr("rank 2 has left the store"));
  leaves.join();
  second.reset();
  for (int asked = 0; asked < 20; ++asked) {  // the server hears of the second in one of these
    EXPECT_THAT(told().what(), HasSubstr("rank 2 has left the store"));
    std::this_thread::sleep_for(milliseconds(5));
  }
}

TEST(SocketStore, LosesItsPeerThoughAChildOfTheServerKeepsTheSocketsOpen) {
  const JobAddress job = job_of(2);
  int worker_pid[2];
  ASSERT_EQ(pipe(worker_pid), 0);
  Child server([&] {
    const StoreServer running(job, at_unix_socket(job));
    char byte = 0;
    join(job, 0)->wait("joined", in_time());
    const pid_t worker = fork();
    if (worker == 0) pause();
    static_cast<void>(!write(worker_pid[1], &worker, sizeof worker));
    while (read(worker_pid[0], &byte, 0) == 0) pause();
  });
  const auto store = join(job, 1);
  store->set("joined", "", in_time());
  pid_t worker = 0;
  ASSERT_EQ(read(worker_pid[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  server.end(SIGKILL);
  EXPECT_EQ(error_of([&] { store->get("never", in_time()); }).kind(), ErrorKind::peer_lost);
  kill(worker, SIGKILL);
  close(worker_pid[0]);
  close(worker_pid[1]);
}

TEST_P(AStoreOverSockets, EndsCallsToAFrozenServerByTheirDeadlineAndGoesOnWhenItThaws) {
  Venue venue(GetParam(), 2);
  Child server(hosting(venue));
  venue.close();  // only the server has the listener now
  const auto store = venue.join(1);
  store->set("before", "frost", in_time());
  kill(server.pid(), SIGSTOP);
  int status = 0;
  waitpid(server.pid(), &status, WUNTRACED);
  EXPECT_EQ(error_of([&] { store->get("before", in(milliseconds(20))); }).kind(),
            ErrorKind::timeout);
  const std::string large(kMaxValueBytes, 'x');  // the socket takes only a part of it
  const Error error = error_of([&] { store->set("large", large, in(milliseconds(20))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("may or may not"));
  EXPECT_EQ(error_of([&] { store->set("next", "", in(milliseconds(20))); }).kind(),
            ErrorKind::timeout);
  kill(server.pid(), SIGCONT);
  EXPECT_EQ(store->get("before", in_time()), "frost");
  EXPECT_TRUE(store->get("large", in_time()) == large);
}

TEST(StoreServer, LingersUntilTheRanksThatHaveJoinedHaveLeft) {
  const JobAddress job = job_of(2);
  ServerLimits limits;
  limits.linger = std::chrono::hours(1);
  std::optional<SocketStore> rank_0;
  auto server = std::make_unique<StoreServer>(job, at_unix_socket(job), limits);
  rank_0.emplace(join_locally(job, 0, in_time()), 0, std::move(server));
  auto slow = join(job, 1);
  rank_0->set("for rank 1", "still here", in_time());
  std::thread ending([&] { rank_0.reset(); });
  EXPECT_EQ(slow->get("for rank 1", in_time()), "still here");
  slow.reset();
  ending.join();
}

TEST(StoreServer, LingersNoLongerThanItsLimit) {
  const JobAddress job = job_of(2);
  ServerLimits limits;
  limits.linger = milliseconds(20);
  std::optional<StoreServer> server(std::in_place, job, at_unix_socket(job), limits);
  const auto forgetful = join(job, 1);
  server.reset();
  EXPECT_EQ(error_of([&] { forgetful->get("key", in_time()); }).kind(), ErrorKind::peer_lost);
}

TEST(StoreServer, DoesNotLingerForANewcomerThatIsNoRankYet) {
  const JobAddress job = job_of(2);
  ServerLimits limits;
  limits.linger = std::chrono::hours(1);
  std::optional<StoreServer> server(std::in_place, job, at_unix_socket(job), limits);
  Log log(LogLevel::error, {});
  const auto route = rendezvous::local_route(job, kFirstNewcomer);
  std::optional<SocketStore> newcomer(
      std::in_place,
      rendezvous::join_store(*route, job, kFirstNewcomer, in_time(), log, {rendezvous::kIdle, 0}),
      kFirstNewcomer);
  newcomer->add("here", 1, in_time());
  std::thread ending([&] { server.reset(); });
  EXPECT_EQ(error_of([&] { newcomer->get("key", in(seconds(10))); }).kind(), ErrorKind::peer_lost);
  newcomer.reset();
  ending.join();
}

TEST(StoreServer, LetsNobodyInWhileItLingers) {
  const JobAddress job = job_of(1000);
  ServerLimits limits;
  limits.linger = std::chrono::hours(1);
  std::optional<StoreServer> server(std::in_place, job, at_unix_socket(job), limits);
  auto last = join(job, 1);
  std::thread ending([&] { server.reset(); });
  std::string why;
  // Ranks join until the thread has made the server linger.
  for (int rank = 2; why.find("earlier") == why.npos && rank < 1000; ++rank) {
    try {
      join(job, rank, in(milliseconds(10)));
    } catch (const Error& error) {
      why = error.what();
    }
  }
  EXPECT_THAT(why, HasSubstr("earlier communicator"));
  last.reset();
  ending.join();
}

template <typename MakeStore>
void expect_that_a_child_is_refused_and_the_parent_goes_on(MakeStore make) {
  std::shared_ptr<Store> store = make();
  store->set("key", "value", in_time());
  Child child([&] {
    try {
      store->get("key", in_time());
    } catch (const Error& error) {
      const bool clear = error.kind() == ErrorKind::usage &&
                         std::string(error.what()).find("forked") != std::string::npos;
      store.reset();  // it must neither hang nor end the parent's server
      _exit(clear ? 7 : 8);
    }
  });
  EXPECT_EQ(child.wait(), 7);
  EXPECT_EQ(store->get("key", in_time()), "value");
}

TEST(SocketStore, RefusesToServeAForkedChildAndGoesOnServingTheParent) {
  expect_that_a_child_is_refused_and_the_parent_goes_on([] {
    const JobAddress job = job_of(2);
    auto server = std::make_unique<StoreServer>(job, at_unix_socket(job));
    return std::make_shared<SocketStore>(join_locally(job, 0, in_time()), 0, std::move(server));
  });
}

TEST(MemoryStore, RefusesToServeAForkedChildAndGoesOnServingTheParent) {
  expect_that_a_child_is_refused_and_the_parent_goes_on(
      [] { return std::make_shared<MemoryStore>(); });
}

TEST(MemoryStore, CanBeDestroyedInAChildWhileAThreadOfTheParentWaits) {
  auto store = std::make_shared<MemoryStore>();
  std::thread waiter([&] { store->wait("key", in_time()); });
  Child child([&] { store.reset(); });
  EXPECT_EQ(child.wait(), 0);
  store->set("key", "", in_time());
  waiter.join();
}

TEST_P(AStoreOverSockets, LeavesNoDescriptorOpen) {
  const std::size_t before = open_descriptors();
  for (int round = 0; round < 3; ++round) {
    Venue venue(GetParam(), 4);
    const auto server = venue.serve();
    const auto first = venue.join(0), second = venue.join(1);
    const Stranger silent(venue);
    Stranger mad(venue);
    mad.say("there is no greeting that begins like this, and none that goes on as this one does");
    EXPECT_THROW(venue.join(1), Error);
    EXPECT_THROW(first->get("never", in(milliseconds(1))), Error);
    second->set("key", "value", in_time());
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace tutti
