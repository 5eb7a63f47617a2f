// Tests of the newcomers to a job, as its ranks see them in the store.
#include "runtime/membership/newcomer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "../rendezvous/counting_store.h"
#include "rendezvous/store/memory_store.h"
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

}  // namespace
}  // namespace tutti::test
