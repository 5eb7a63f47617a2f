#include "rendezvous/store/store_service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace tutti::rendezvous {
namespace {

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

TEST_F(AStoreService, RefusesToAddWhatIsNoNumber) {
  ask(1, 1, Verb::add, "key", "1e3");
  ask(1, 2, Verb::add, "key", "");
  ask(1, 3, Verb::add, "key", "99999999999999999999");
  ASSERT_EQ(said_.size(), 3u);
  for (const Said& said : said_) EXPECT_EQ(said.status, Status::usage);
}

TEST(StoreRequests, AreInsaneBeyondTheLimitsOfKeysAndValues) {
  constexpr std::uint32_t kKey = kMaxKeyBytes, kValue = kMaxValueBytes;
  EXPECT_TRUE(StoreService::is_sane({1, Verb::set, kKey, kValue, 0}));
  EXPECT_TRUE(StoreService::is_sane({1, Verb::get, 0, 0, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::set, kKey + 1, 0, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::set, 1, kValue + 1, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::get, 1, 1, 0})) << "a get has no value";
  EXPECT_FALSE(StoreService::is_sane({1, Verb{0}, 1, 0, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb{6}, 1, 0, 0}));
  EXPECT_FALSE(StoreService::is_sane({1, Verb::get, 1, 0, 1}));
}

}  // namespace
}  // namespace tutti::rendezvous
