// Tests a store's server beside a standby that is slow, which is the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "common/bytes.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/replication.h"
#include "test_job.h"

namespace tutti {
namespace {

using std::chrono::steady_clock;

/// Stands by as rank 1, and confirms each change `delay` after it has come, or after it has
/// confirmed the one before where it works at one at a time.
class SlowStandby {
 public:
  SlowStandby(const JobAddress& job, milliseconds delay, bool one_at_a_time)
      : thread_([this, job, delay, one_at_a_time] { run(job, delay, one_at_a_time); }) {}
  ~SlowStandby() {
    stop_ = true;
    thread_.join();
  }
  bool dismissed() const { return dismissed_; }

 private:
  void run(const JobAddress& job, milliseconds delay, bool one_at_a_time) {
    Log log(LogLevel::error, {});
    const auto route = rendezvous::local_route(job, 1, geteuid());
    auto joined =
        rendezvous::join_store(*route, job, 1, in_time(), log, {rendezvous::kStandsBy, 0});
    net::Connection& primary = joined.connection;
    const std::string address = "1\n";
    primary.queue(
        bytes_of(rendezvous::FromStandby{0, static_cast<std::uint32_t>(address.size()), 0}));
    primary.queue(address);
    std::deque<std::pair<steady_clock::time_point, std::uint64_t>> come;
    while (!stop_) {
      if (!primary.flush() || !primary.receive()) return;
      while (const auto received = rendezvous::decode(primary.received())) {
        dismissed_ = dismissed_ || received->change.kind == rendezvous::Change::Kind::dismissed;
        auto at = steady_clock::now() + delay;
        if (one_at_a_time && !come.empty()) at = come.back().first + delay;
        come.emplace_back(at, received->number);
        primary.consume(received->bytes);
      }
      for (; !come.empty() && come.front().first <= steady_clock::now(); come.pop_front())
        primary.queue(bytes_of(rendezvous::FromStandby{come.front().second, 0, 0}));
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  std::atomic<bool> stop_{false}, dismissed_{false};
  std::thread thread_;
};

// The link to the standby takes 200 ms, and there is a change every 50 ms.
TEST(SlowStandby, IsInStepThoughChangesDoNotEnd) {
  const JobAddress job = job_of(2);
  const StoreServer server(job, at_unix_socket(job), {}, "2\n");
  const auto client = join(job, 0);
  const SlowStandby standby(job, milliseconds(200), false);
  std::atomic<bool> over{false};
  std::thread changes([&] {
    for (; !over; std::this_thread::sleep_for(milliseconds(50))) client->add("sum", 1, in_time());
  });
  EXPECT_NO_THROW(client->wait(std::string(rendezvous::kStandbyKey) + "1", in(seconds(10))));
  EXPECT_FALSE(standby.dismissed());
  over = true;
  changes.join();
}

// Six changes come at once to a standby that takes 400 ms for each.
TEST(SlowStandby, HoldsNoReplyUpForLongerThanAFrozenOne) {
  const JobAddress job = job_of(2);
  const StoreServer server(job, at_unix_socket(job), {}, "2\n");
  const auto client = join(job, 0);
  const SlowStandby standby(job, milliseconds(400), true);
  client->wait(std::string(rendezvous::kStandbyKey) + "1", in_time());
  std::vector<std::thread> threads;
  for (int n = 0; n < 6; ++n) threads.emplace_back([&] { client->add("sum", 1, in_time()); });
  for (std::thread& thread : threads) thread.join();
  for (const auto deadline = in_time(); !standby.dismissed();) {
    ASSERT_LT(steady_clock::now(), deadline) << "the replies waited for the standby";
    std::this_thread::sleep_for(milliseconds(10));
  }
}

}  // namespace
}  // namespace tutti
