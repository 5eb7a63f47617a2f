// Tests of a store's server whose thread gets no memory, at each point of what it does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "poor_memory.h"
#include "rendezvous/store/server_loop.h"
#include "rendezvous/store/standby.h"
#include "test_job.h"

namespace tutti {
namespace {

using rendezvous::ServerLoop;

/// A server of three ranks, whose thread is poor.
class PoorServer {
 public:
  explicit PoorServer(const JobAddress& job)
      : way_{job, 1, 7}, place_(rendezvous::open_place(way_, random_)) {
    rendezvous::Standing standing;
    standing.address = place_.address;
    place_.listeners.push_back(unix_listener(job));
    loop_ = std::make_unique<ServerLoop>(job, std::move(place_.listeners), ServerLimits{},
                                         stop_.get(), std::move(standing));
    thread_ = std::thread([this] {
      test::is_poor = true;
      try {
        loop_->run();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "the server has ended: " << error.what();
      }
      test::is_poor = false;
      loop_.reset();
    });
  }
  ~PoorServer() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  PoorServer(const PoorServer&) = delete;
  PoorServer& operator=(const PoorServer&) = delete;

  /// The server of rank 1 that stands by for this one, once this one knows it.
  std::unique_ptr<rendezvous::Standby> follow(Store& store) const {
    auto standby = std::make_unique<rendezvous::Standby>(way_, place_.address);
    store.wait(std::string(rendezvous::kStandbyKey) + "1", in_time());
    return standby;
  }

 private:
  SystemRandom random_;
  const rendezvous::Way way_;
  rendezvous::OpenedPlace place_;
  const Fd stop_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::unique_ptr<ServerLoop> loop_;
  std::thread thread_;
};

// Nobody waits in vain for a server that lacks memory. `may_be_late` says that a request may have
// to wait until the server has some.
void try_to(const std::function<void()>& request, bool may_be_late = false) {
  try {
    request();
  } catch (const Error& error) {
    if (may_be_late && error.kind() == ErrorKind::timeout) return;
    EXPECT_THAT(error.kind(), testing::AnyOf(ErrorKind::unavailable, ErrorKind::peer_lost))
        << error.what();
  }
}

/// Ranks 0 and 2 use the store while one allocation of the server, or each from one on, fails.
/// Returns whether there were as many.
bool fail_at(long count, bool all, bool followed) {
  const JobAddress job = job_of(3);
  PoorServer server(job);
  auto first = join(job, 0), other = join(job, 2);
  std::unique_ptr<rendezvous::Standby> standby;
  if (followed) standby = server.follow(*first);
  const std::string large(4 << 10, 'x');
  first->set("a key of before", large, in_time());
  first->set_when_gone("gone", "rank 0", in_time());
  test::fail_allocation(count, all);
  std::thread waiter([&] { try_to([&] { other->get("a key that is set", in(seconds(10))); }); });
  // Replies wait for a standby that lacks a change until there is memory to dismiss it.
  const bool may_be_late = all && followed;
  const auto soon = [&] { return in(may_be_late ? milliseconds(20) : milliseconds(10'000)); };
  try_to([&] { first->set("a key of some length", large, soon()); }, may_be_late);
  try_to([&] { first->get("a key of before", soon()); }, may_be_late);
  try_to([&] { first->set_when_gone("another of some length", "value", soon()); }, may_be_late);
  try_to([&] { first->add("a number of some length", 1234567890123456789, soon()); }, may_be_late);
  if (!all)  // else it tries to join until its deadline
    try_to([&] { join(job, kFirstNewcomer)->set("k", "", in(seconds(10))); });
  first.reset();
  std::this_thread::sleep_for(milliseconds(all ? 20 : 0));  // while it tries to part with rank 0
  const bool failed = test::stop_failing();
  const auto witness = join(job, kFirstNewcomer + 1);
  witness->set("a key that is set", "", in_time());
  waiter.join();
  EXPECT_EQ(witness->get("gone", in(seconds(10))), "rank 0");
  return failed;
}

constexpr long kMostAllocations = 80;  // more than the server makes meanwhile

class PoorMemory : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!test::kCanBePoor) GTEST_SKIP() << "ThreadSanitizer does not let operator new be replaced";
  }
};
INSTANTIATE_TEST_SUITE_P(All, PoorMemory, testing::Bool(), [](const auto& followed) {
  return std::string(followed.param ? "WithAStandby" : "Alone");
});

TEST_P(PoorMemory, OfOneMomentEndsNoServer) {
  long points = 0;
  for (long count = 0; count < kMostAllocations && !HasFailure(); ++count)
    points += fail_at(count, false, GetParam()) ? 1 : 0;
  EXPECT_GT(points, 0);
}

TEST_P(PoorMemory, OfSomeTimeEndsNoServer) {
  long points = 0;
  for (long count = 0; count < kMostAllocations && !HasFailure(); count += 3)
    points += fail_at(count, true, GetParam()) ? 1 : 0;
  EXPECT_GT(points, 0);
}

// Joins as a client that goes to the server's successor where it has lost the server.
std::shared_ptr<SocketStore> join_to_stay(const JobAddress& job, int rank) {
  rendezvous::Way way{job, rank, 900};
  Log log(LogLevel::error, {});
  const auto route = rendezvous::local_route(job, rank);
  rendezvous::Joined joined = rendezvous::join_store(*route, job, rank, in_time(), log,
                                                     way.applying(rendezvous::kMayStandBy));
  return std::make_shared<SocketStore>(std::move(joined), rank, nullptr, nullptr, std::move(way));
}

// The server lives, so that the one that stands by for it does not take over.
TEST(APoorServer, EndsTheCallsOfAClientWithWhichItParts) {
  if (!test::kCanBePoor) GTEST_SKIP() << "ThreadSanitizer does not let operator new be replaced";
  int parted = 0;
  for (long count = 0; count < kMostAllocations && parted == 0; ++count) {
    const JobAddress job = job_of(3);
    const PoorServer server(job);
    const auto other = join(job, 2);
    const auto standby = server.follow(*other);
    const auto client = join_to_stay(job, 0);
    client->set("a key of before", "value", in_time());
    test::fail_allocation(count, false);
    try {
      client->set("a key of some length", std::string(4 << 10, 'x'), in(seconds(15)));
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::timeout) << error.what();
      if (error.kind() == ErrorKind::peer_lost) {
        ++parted;
        EXPECT_THAT(error.what(), testing::HasSubstr("has parted with this process"));
      }
    }
    test::stop_failing();
  }
  EXPECT_GT(parted, 0);
}

}  // namespace
}  // namespace tutti
