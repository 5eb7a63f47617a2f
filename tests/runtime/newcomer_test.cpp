// Tests of the newcomers to a job, as its ranks see them in the store.
#include "runtime/membership/newcomer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "../rendezvous/counting_store.h"
#include "rendezvous/store/memory_store.h"
#include "runtime/membership/setup.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::IsEmpty;

class NewcomersToAJob : public testing::Test {
 protected:
  /// A newcomer comes, which is this process, and goes in vain.
  void come_and_go() {
    const std::string why =
        outcome_of([this] { join_as_newcomer(store_, {}, {}, steady_clock::now()); });
    EXPECT_THAT(why, testing::StartsWith("timeout"));
    ++last_;
  }
  /// The next newcomer waits, which says of itself what the first one did, with `start` as the time
  /// at which its process started where that is not empty.
  void wait(const std::string& start = {}) {
    std::string process = store_->get("tutti/newcomer/1/process", soon());
    const std::size_t at = process.find(' ') + 1;
    if (!start.empty()) process.replace(at, process.find(' ', at) - at, start);
    store_->add("tutti/newcomers", 1, soon());
    ++last_;
    store_->set(fmt::format("tutti/newcomer/{}/process", last_), process, soon());
    store_->add(fmt::format("tutti/newcomer/{}/state", last_), 1, soon());
  }
  static Store::Deadline soon() { return steady_clock::now() + 5s; }

  const std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
  int last_ = 0;
};

TEST_F(NewcomersToAJob, AreAskedForNoMoreOnceTheyHaveGone) {
  constexpr int kGone = 20;
  for (int newcomer = 0; newcomer < kGone; ++newcomer) come_and_go();
  wait();
  CountingStore counted(*store_);
  Newcomers newcomers;
  EXPECT_THAT(newcomers.waiting(counted, soon()), ElementsAre(kGone + 1));
  counted.calls = 0;
  EXPECT_THAT(newcomers.waiting(counted, soon()), ElementsAre(kGone + 1));
  EXPECT_LT(counted.calls, kGone);
  wait();
  EXPECT_THAT(newcomers.waiting(counted, soon()), ElementsAre(kGone + 1, kGone + 2));
}

TEST_F(NewcomersToAJob, AreNotTakenForAnotherProcessThatHasTheirNumberLater) {
  come_and_go();
  wait("1");
  Newcomers newcomers;
  EXPECT_THAT(newcomers.waiting(*store_, soon()), IsEmpty());
  wait();
  EXPECT_THAT(newcomers.waiting(*store_, soon()), ElementsAre(3));
}

/// The store of a job whose ranks end before a newcomer can read how its round ended.
class StoreUntilTheVerdict final : public Store {
 public:
  explicit StoreUntilTheVerdict(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    of(key).set(key, value, deadline);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    return of(key).get(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    return of(key).add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override { of(key).wait(key, deadline); }

 private:
  Store& of(std::string_view key) {
    const bool of_verdict = key.find("/verdict/") != std::string_view::npos;
    if (of_verdict && key.ends_with("/ballots")) ended_ = true;
    if (ended_) throw Error(ErrorKind::peer_lost, "the store is gone");
    return *store_;
  }

  const std::shared_ptr<Store> store_;
  bool ended_ = false;
};

TEST_F(NewcomersToAJob, HearWhyTheyCouldNotJoinAlthoughTheStoreIsGone) {
  store_->set("tutti/newcomer/1/place", "group round 1 2 1 5000", soon());
  std::thread rank([this] {
    Config other = quick_config();
    other.checksum = true;
    const Process process{std::make_shared<Runtime>(other), nullptr};
    EXPECT_THAT(outcome_of([&] { join_named(store_, "group", 0, 2, process, {}, soon()); }),
                StartsWith("mismatch"));
  });
  const std::string why = outcome_of([this] {
    join_as_newcomer(std::make_shared<StoreUntilTheVerdict>(store_), quick_config(), {}, soon());
  });
  rank.join();
  EXPECT_THAT(why, AllOf(StartsWith("mismatch"), HasSubstr("checksum")));
}

}  // namespace
}  // namespace tutti::test
