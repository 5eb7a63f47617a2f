#include "rendezvous/store/store_service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace tutti::rendezvous {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Said {
  int guest;
  std::uint64_t id;
  Status status;
  std::string bytes;

  bool operator==(const Said&) const = default;
};

class AStoreService : public testing::Test {
 protected:
  void ask(int guest, std::uint64_t id, Verb verb, std::string_view key,
           std::string_view value = {}) {
    const Request request{id, verb, static_cast<std::uint32_t>(key.size()),
                          static_cast<std::uint32_t>(value.size()), 0};
    ASSERT_TRUE(StoreService::is_sane(request));
    service_.handle(guest, request, key, value);
  }

  std::vector<std::string> keys() const {
    std::vector<std::string> all;
    service_.copy([&](const Change& change) { all.emplace_back(change.key); });
    return all;
  }

  std::vector<Said> said_;
  StoreService service_{[this](int guest, const Reply& reply, std::string_view bytes) {
    EXPECT_EQ(reply.bytes, bytes.size());
    said_.push_back({guest, reply.id, reply.status, std::string(bytes)});
  }};
};

TEST_F(AStoreService, AnswersThoseWhoWaitInTheOrderInWhichTheyCame) {
  ask(1, 10, Verb::get, "key");
  ask(2, 20, Verb::wait, "key");
  ask(1, 11, Verb::get, "key");
  ask(2, 21, Verb::get, "other");
  EXPECT_THAT(said_, IsEmpty());
  ask(3, 30, Verb::set, "key", "value");
  EXPECT_THAT(said_, ElementsAre(Said{3, 30, Status::ok, ""}, Said{1, 10, Status::ok, "value"},
                                 Said{2, 20, Status::ok, ""}, Said{1, 11, Status::ok, "value"}));
  EXPECT_EQ(service_.waits(), 1u);
}

TEST_F(AStoreService, ForgetsARequestThatWasGivenUpAndNoOther) {
  ask(1, 10, Verb::get, "key");
  ask(1, 11, Verb::get, "key");
  ask(2, 10, Verb::get, "key");
  ask(1, 10, Verb::forget, "");
  ask(3, 30, Verb::add, "key", "5");
  EXPECT_THAT(said_, ElementsAre(Said{3, 30, Status::ok, "5"}, Said{1, 11, Status::ok, "5"},
                                 Said{2, 10, Status::ok, "5"}));
}

TEST_F(AStoreService, ForgetsAllThatAGuestWaitedForWhenItLeaves) {
  ask(1, 10, Verb::get, "a");
  ask(1, 11, Verb::get, "b");
  ask(2, 20, Verb::get, "b");
  service_.leave(1);
  EXPECT_EQ(service_.waits(), 1u);
}

TEST_F(AStoreService, RefusesAGuestThatWaitsForTooMuchAtOnce) {
  for (std::uint64_t i = 0; i < StoreService::kMaxWaitsOfAClient; ++i)
    ask(1, i, Verb::get, fmt::format("{}", i));
  EXPECT_THAT(said_, IsEmpty());
  ask(1, 999, Verb::get, "one more");
  ask(2, 0, Verb::get, "another's first");
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_EQ(said_[0].status, Status::usage);
  EXPECT_THAT(said_[0].bytes, HasSubstr("one more"));
}

TEST_F(AStoreService, CountsNoWaitTwiceThatHasEnded) {
  for (std::uint64_t i = 0; i < 3 * StoreService::kMaxWaitsOfAClient; ++i) {
    ask(1, i, Verb::get, "never");
    ask(1, i, Verb::forget, "");
    ask(1, i, Verb::wait, fmt::format("{}", i));
    ask(2, i, Verb::set, fmt::format("{}", i), "");
  }
  EXPECT_EQ(service_.waits(), 0u);
  for (const Said& said : said_) EXPECT_EQ(said.status, Status::ok);
}

TEST_F(AStoreService, SetsKeysWhenAGuestHasLeft) {
  ask(1, 10, Verb::set_when_gone, "lost", "guest 1 has ended");
  ask(1, 11, Verb::set_when_gone, "kept", "of guest 1");
  ask(1, 12, Verb::set_when_gone, "taken back", "of guest 1");
  ask(1, 13, Verb::set_when_gone, "taken back");
  ask(1, 14, Verb::get, "late", encode_keys({"lost"}));
  ask(2, 20, Verb::set, "kept", "of guest 2");
  ask(2, 21, Verb::get, "late", encode_keys({"lost"}));
  ask(2, 22, Verb::get, "late", encode_keys({"taken back"}));
  said_.clear();
  service_.leave(1);
  EXPECT_THAT(said_, ElementsAre(Said{2, 21, Status::unless, "guest 1 has ended"}));
  ask(2, 23, Verb::get, "kept");
  ask(2, 24, Verb::get, "late", encode_keys({"lost"}));
  EXPECT_THAT(said_, ElementsAre(Said{2, 21, Status::unless, "guest 1 has ended"},
                                 Said{2, 23, Status::ok, "of guest 2"},
                                 Said{2, 24, Status::unless, "guest 1 has ended"}));
  EXPECT_EQ(service_.waits(), 1u);
  service_.leave(2);
  EXPECT_EQ(service_.waits(), 0u);
}

TEST_F(AStoreService, DeletesSharedKeysWhenAllWhoShareThemHaveLeft) {
  ask(9, 90, Verb::set, "job", "another's");
  ask(9, 91, Verb::set, "job/7", "another's");
  for (int guest : {1, 2}) {
    ask(guest, 10, Verb::share, "job/", "2");
    ask(guest, 11, Verb::set, fmt::format("job/{}", guest), "of a guest");
    ask(guest, 12, Verb::share, "none/", "none");
    ask(guest, 12, Verb::share, "", "1");
  }
  service_.leave(1);
  EXPECT_EQ(keys(),
            (std::vector<std::string>{"job", "job/1", "job/2", "job/7", "tutti/left/4/job/"}));
  service_.leave(9);  // It shares nothing.
  EXPECT_EQ(keys().size(), 5u);
  service_.leave(2);
  EXPECT_EQ(keys(), std::vector<std::string>{"job"});
  for (const Said& said : said_) EXPECT_TRUE(said.id != 10 && said.id != 12) << "has an answer";
}

TEST_F(AStoreService, DeletesSharedKeysWithinOthersThatAreShared) {
  for (int guest : {1, 2}) {
    ask(guest, 10, Verb::share, "a/", "2");
    ask(guest, 11, Verb::share, "a/b/", "2");
  }
  ask(1, 12, Verb::set, "a/b/key", "value");
  service_.leave(1);
  service_.leave(2);
  EXPECT_EQ(keys(), std::vector<std::string>());
}

TEST_F(AStoreService, DeletesSharedKeysWhoseCounterIsNone) {
  ask(1, 10, Verb::set, "tutti/left/4/job/", "9223372036854775807");
  ask(1, 11, Verb::share, "job/", "1");
  service_.leave(1);
  EXPECT_EQ(keys(), std::vector<std::string>());
}

TEST_F(AStoreService, LetsAClientComeBackThatGaveUpBeforeItWasAnswered) {
  service_.enter(1, 111, kReturns);
  service_.leave(1);
  EXPECT_FALSE(service_.has_parted_with(111));
  service_.enter(2, 111, kReturns);
  ask(2, 10, Verb::set, "key", "value");
  service_.leave(2);
  EXPECT_TRUE(service_.has_parted_with(111));
}

TEST_F(AStoreService, KnowsWithWhomItHasParted) {
  service_.enter(1, 111, 0);
  service_.enter(2, 222, 0);
  service_.leave(1);
  EXPECT_TRUE(service_.has_parted_with(111));
  EXPECT_FALSE(service_.has_parted_with(222));
}

TEST_F(AStoreService, SetsANumberWhenAGuestHasLeftAtWhichOthersHaveLooked) {
  ask(1, 10, Verb::set_when_gone, "count", "1");
  ask(2, 20, Verb::add, "count", "0");
  service_.leave(1);
  said_.clear();
  ask(2, 21, Verb::add, "count", "0");
  EXPECT_THAT(said_, ElementsAre(Said{2, 21, Status::ok, "1"}));
}

// Other writers of the protocol than this program's spell 0 as they like.
TEST_F(AStoreService, ReadsByAnyZero) {
  for (const char* zero : {"0", "-0", "000"}) ask(1, 10, Verb::add, "count", zero);
  EXPECT_THAT(said_, Each(Said{1, 10, Status::ok, "0"}));
  ask(1, 11, Verb::set_when_gone, "count", "nothing was written");
  service_.leave(1);
  ask(2, 20, Verb::get, "count");
  EXPECT_EQ(said_.back(), (Said{2, 20, Status::ok, "nothing was written"}));
}

TEST_F(AStoreService, EndsAWaitByAKeyWithoutAText) {
  ask(1, 10, Verb::get, "late", encode_keys({"lost"}));
  ask(2, 20, Verb::set, "lost");
  ask(1, 11, Verb::get, "late", encode_keys({"lost"}));
  EXPECT_THAT(said_, ElementsAre(Said{2, 20, Status::ok, ""}, Said{1, 10, Status::unless, ""},
                                 Said{1, 11, Status::unless, ""}));
}

TEST_F(AStoreService, RefusesAGuestThatWouldHaveTooManyKeysSet) {
  for (std::size_t i = 0; i < StoreService::kMaxLeftByAClient; ++i)
    ask(1, i, Verb::set_when_gone, fmt::format("key {}", i), "value");
  said_.clear();
  ask(1, 900, Verb::set_when_gone, "one more", "value");
  ask(1, 901, Verb::set_when_gone, "key 0", "another value");
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_EQ(said_[0].status, Status::usage);
  EXPECT_EQ(said_[1].status, Status::ok);
}

TEST_F(AStoreService, RefusesToAddWhatIsNoNumber) {
  ask(1, 1, Verb::add, "key", "1e3");
  ask(1, 2, Verb::add, "key", "");
  ask(1, 3, Verb::add, "key", "99999999999999999999");
  ASSERT_EQ(said_.size(), 3u);
  for (const Said& said : said_) EXPECT_EQ(said.status, Status::usage);
}

TEST(StoreRequests, AreInsaneBeyondTheLimitsOfKeysAndValues) {
  constexpr std::uint32_t kKey = kMaxKeyBytes, kValue = kMaxValueBytes,
                          kKeys = kMaxEncodedKeysBytes;
  EXPECT_TRUE(StoreService::is_sane({1, Verb::set, kKey, kValue, 0}));
  EXPECT_TRUE(StoreService::is_sane({1, Verb::get, 0, 0, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::set, kKey + 1, 0, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::set, 1, kValue + 1, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::wait, 1, 1, 0})) << "a wait has no value";
  EXPECT_TRUE(StoreService::is_sane({1, Verb::get, kKey, kKeys, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::get, 1, kKeys + 1, 0}));
  EXPECT_TRUE(StoreService::is_sane({1, Verb::set_when_gone, kKey, kKey, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::set_when_gone, 1, kKey + 1, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb{0}, 1, 0, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb{9}, 1, 0, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::get, 1, 0, 1}));
}

}  // namespace
}  // namespace tutti::rendezvous
