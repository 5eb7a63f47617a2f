// Tests of which ranks can join a job's store, and of the errors that the others get.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <optional>
#include <thread>
#include <vector>

#include "common/log.h"
#include "net/local_socket.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/open_store.h"
#include "test_job.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST(JoinStore, WaitsForAServerThatStartsLater) {
  const JobAddress job = job_of(2);
  std::shared_ptr<Store> store;
  std::thread early([&] { store = join(job, 1); });
  const StoreServer server(job, at_unix_socket(job));
  early.join();
  store->set("key", "value", in_time());
  store.reset();  // otherwise the server would linger
}

TEST(JoinStore, TimesOutNamingThePortWhereNobodyListens) {
  const JobAddress job = job_of(2);
  const Error error = error_of([&] { join(job, 1, in(milliseconds(20))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("rank 1"));
  EXPECT_THAT(error.what(), HasSubstr(fmt::format("MASTER_PORT {}", job.port)));
  EXPECT_THAT(error.what(), HasSubstr("nobody listens"));
}

TEST(JoinStore, NamesTheProcessThatHasTheSameRank) {
  const JobAddress job = job_of(3);
  int joined[2];
  ASSERT_EQ(pipe(joined), 0);
  Child first([&] {
    const auto store = join(job, 1);
    static_cast<void>(!write(joined[1], "j", 1));
    store->wait("end", in_time());
  });
  const StoreServer server(job, at_unix_socket(job));
  const auto other = join(job, 0);
  char byte = 0;
  ASSERT_EQ(read(joined[0], &byte, 1), 1);
  const Error error = error_of([&] { join(job, 1); });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch);
  EXPECT_THAT(error.what(), HasSubstr(fmt::format("process {} as rank 1", first.pid())));
  other->set("end", "", in_time());
  EXPECT_EQ(first.wait(), 0) << "the first must not notice the second";
  close(joined[0]);
  close(joined[1]);
}

TEST(JoinStore, RefusesARankOfAJobWithAnotherWorldSize) {
  const JobAddress job = job_of(4);
  const StoreServer server(job, at_unix_socket(job));
  JobAddress wrong = job;
  wrong.size = 8;
  const Error error = error_of([&] { join(wrong, 1); });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch);
  EXPECT_THAT(error.what(), HasSubstr("4 ranks"));
  EXPECT_THAT(error.what(), HasSubstr("WORLD_SIZE 8"));
}

TEST(JoinStore, RefusesARankOfAJobWithAnotherName) {
  const JobAddress job = job_of(4);
  const StoreServer server(job, at_unix_socket(job));
  JobAddress wrong = job;
  wrong.job = "yesterday's";
  const Error error = error_of([&] { join(wrong, 1); });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch);
  EXPECT_THAT(error.what(), HasSubstr("yesterday's"));
}

TEST(JoinStore, RefusesAServerOfAnotherUser) {
  const JobAddress job = job_of(2);
  const StoreServer server(job, at_unix_socket(job));
  const Error error = error_of([&] { join_locally(job, 1, in_time(), geteuid() + 1); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_THAT(error.what(), HasSubstr(fmt::format("process {} of user {}", getpid(), geteuid())));
}

TEST(JoinStore, RefusesASocketThatIsNotOfAStore) {
  const JobAddress job = job_of(2);
  const Fd listener = net::listen_local(job.socket_name());
  std::optional<Error> error;
  std::thread rank([&] { error = error_of([&] { join(job, 1); }); });
  pollfd called{listener.get(), POLLIN, 0};
  poll(&called, 1, -1);
  const Fd accepted(accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(write(accepted.get(), "HTTP/1.1 400 Bad Request", 24), 24);
  rank.join();
  EXPECT_EQ(error->kind(), ErrorKind::unavailable);
  EXPECT_THAT(error->what(), HasSubstr("not tutti's"));
}

TEST(JoinStore, TimesOutAtASocketThatDoesNotAnswer) {
  const JobAddress job = job_of(2);
  const Fd listener = net::listen_local(job.socket_name());
  const Error error = error_of([&] { join(job, 1, in(milliseconds(20))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("does not answer"));
}

TEST(JoinStore, GetsARankThatComesAgainIntoTheNextStoreAndNotTheOldOne) {
  const JobAddress job = job_of(2);
  std::optional<StoreServer> server(std::in_place, job, at_unix_socket(job));
  join(job, 1)->set("whose", "the old one's", in_time());
  const Error error = error_of([&] { join(job, 1, in(milliseconds(20))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("earlier communicator"));
  std::shared_ptr<Store> again;
  std::thread rank([&] { again = join(job, 1); });
  server.reset();
  server.emplace(job, at_unix_socket(job));
  rank.join();
  EXPECT_EQ(error_of([&] { again->get("whose", in(milliseconds(20))); }).kind(),
            ErrorKind::timeout);
}

TEST(StoreServer, NamesTheProcessThatHasThePort) {
  const JobAddress job = job_of(2);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  Child host([&] {
    const StoreServer server(job, at_unix_socket(job));
    static_cast<void>(!write(ready[1], "r", 1));
    pause();
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const Error error = error_of([&] { StoreServer second(job, at_unix_socket(job)); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_THAT(error.what(), HasSubstr(fmt::format("process {}", host.pid())));
  host.end(SIGKILL);
  const StoreServer after(job, at_unix_socket(job));  // the name disappeared with its owner
  close(ready[0]);
  close(ready[1]);
}

TEST(StoreServer, SaysSoWhenThisVeryProcessHasThePort) {
  const JobAddress job = job_of(2);
  const StoreServer server(job, at_unix_socket(job));
  EXPECT_EQ(error_of([&] { StoreServer second(job, at_unix_socket(job)); }).kind(),
            ErrorKind::usage);
}

LaunchEnvironment launch_of(int rank, int size) {
  LaunchEnvironment launch;
  launch.rank = launch.local_rank = rank;
  launch.size = size;
  launch.master_address = "localhost";
  launch.master_port = job_of(size).port;
  launch.job = "open";
  return launch;
}

TEST(OpenStore, NeedsNoServerForOneRank) {
  Log log(LogLevel::error, {});
  LaunchEnvironment alone;
  const auto store = open_store(alone, {}, in_time(), log).store;
  EXPECT_NE(dynamic_cast<MemoryStore*>(store.get()), nullptr);
}

TEST(OpenStore, BringsProcessesTogetherWhateverTheOrderInWhichTheyStart) {
  constexpr int kRanks = 8;
  std::vector<std::unique_ptr<Child>> ranks;
  const int port = launch_of(0, kRanks).master_port;
  for (int rank = kRanks; rank-- > 0;)
    ranks.push_back(std::make_unique<Child>([rank, port] {
      LaunchEnvironment launch = launch_of(rank, kRanks);
      launch.master_port = port;
      Log log(LogLevel::error, {});
      const auto store = open_store(launch, {}, in_time(), log).store;
      store->set(fmt::format("rank {}", rank), "here", in_time());
      for (int peer = 0; peer < kRanks; ++peer)
        if (store->get(fmt::format("rank {}", peer), in_time()) != "here") _exit(2);
    }));
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(), 0);
}

}  // namespace
}  // namespace tutti
