// Tests of a store that a second server follows, without sockets: the first one ends at each point.
#include "rendezvous/store/replication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <tutti/error.hpp>

#include "common/random.h"
#include "rendezvous/store/store_service.h"

namespace tutti::rendezvous {
namespace {

using testing::ElementsAre;

/// A server's part that handles requests, and what it has said: by client and request.
struct Server {
  std::map<std::pair<int, std::uint64_t>, std::string> said;
  std::vector<std::string> changes;  // encoded
  StoreService service{
      [this](int client, const Reply& reply, std::string_view bytes) {
        EXPECT_EQ(reply.status, Status::ok);
        said[{client, reply.id}] = bytes;
      },
      [this](const Change& change) { changes.push_back(encode(change, changes.size() + 1)); }};

  void ask(int client, std::uint64_t id, Verb verb, std::string_view key, std::string_view value,
           std::uint64_t settled = 0) {
    service.handle(client,
                   {id, verb, static_cast<std::uint32_t>(key.size()),
                    static_cast<std::uint32_t>(value.size()), 0, settled},
                   key, value);
  }
  void follow(const std::vector<std::string>& others, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto received = decode(others[i]);
      ASSERT_TRUE(received);
      EXPECT_EQ(received->bytes, others[i].size());
      service.apply(received->change);
    }
  }
};

// Two clients add in any order. The first server ends when the second one has `known` of its
// changes, at least those whose answers were sent. Who has no answer asks the second one again.
TEST(Replication, AChangeIsMadeOnceWhereverTheFirstServerEnds) {
  constexpr int kRequests = 8;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (std::size_t made = 0; made <= 2 * kRequests; ++made)
      for (const std::size_t known : {made, made == 0 ? 0 : made - 1}) {
        SeededRandom random(seed);
        Server first, second;
        for (int client : {1, 2}) {
          first.service.enter(client, 100 + static_cast<std::uint64_t>(client), 0);
          second.service.enter(client, 100 + static_cast<std::uint64_t>(client), kReturns);
        }
        std::map<int, std::uint64_t> asked;
        std::set<std::string> sums;
        const auto next = [&] {
          const int client = static_cast<int>(random.next() % 2) + 1;
          return asked[client] < kRequests ? client : 3 - client;
        };
        for (std::size_t i = 0; i < made; ++i) {
          const int client = next();
          const std::uint64_t id = ++asked[client];
          first.ask(client, id, Verb::add, "key", "1", id);
          // The answer to the last change is sent only if the second server has the change.
          if (i < known) sums.insert(first.said.at({client, id}));
        }
        second.follow(first.changes, known);
        for (int client : {1, 2}) {
          // The last request may not have been answered, although the second server has it.
          if (asked[client] > 0) {
            second.ask(client, asked[client], Verb::add, "key", "1", asked[client]);
            sums.insert(second.said.at({client, asked[client]}));
          }
          while (asked[client] < kRequests) {
            second.ask(client, ++asked[client], Verb::add, "key", "1", asked[client]);
            sums.insert(second.said.at({client, asked[client]}));
          }
        }
        EXPECT_EQ(sums.size(), 2u * kRequests) << "seed " << seed << ", after " << made;
        EXPECT_TRUE(sums.contains(std::to_string(2 * kRequests)));
      }
}

TEST(Replication, ARepeatedSetDoesNotUndoALaterOne) {
  Server server;
  server.service.enter(1, 101, 0);
  server.service.enter(2, 102, 0);
  server.ask(1, 1, Verb::set, "key", "old", 1);
  server.ask(2, 1, Verb::set, "key", "new", 1);
  server.ask(1, 1, Verb::set, "key", "old", 1);
  server.ask(1, 2, Verb::get, "key", {});
  EXPECT_EQ((server.said[{1, 2}]), "new");
  EXPECT_EQ(server.changes.size(), 2u);
}

TEST(Replication, ACopyHasTheKeysAndTheAnswersAndNoSettledOne) {
  Server first, second;
  first.service.enter(1, 101, 0);
  first.ask(1, 1, Verb::add, "a", "5", 1);
  first.ask(1, 2, Verb::add, "a", "5", 2);
  std::vector<std::string> copy;
  first.service.copy([&](const Change& change) { copy.push_back(encode(change, 1)); });
  EXPECT_EQ(copy.size(), 2u) << "a key, and the answer that is not settled";
  second.follow(copy, copy.size());
  second.service.enter(1, 101, kReturns);
  second.ask(1, 2, Verb::add, "a", "5", 2);
  second.ask(1, 3, Verb::get, "a", {});
  EXPECT_EQ((second.said[{1, 2}]), "10");
  EXPECT_EQ((second.said[{1, 3}]), "10");
}

TEST(Replication, KeepsNoAnswersOfAClientThatHasLeftAndAFewOfOneThatSettlesNone) {
  Server server;
  server.service.enter(1, 101, 0);
  for (std::uint64_t id = 1; id <= 2 * StoreService::kMaxAnswersOfAClient; ++id)
    server.ask(1, id, Verb::set, "key", "value");
  std::size_t count = 0;
  server.service.copy([&](const Change&) { ++count; });
  EXPECT_EQ(count, 1 + StoreService::kMaxAnswersOfAClient);
  server.service.leave(1);
  count = 0;
  server.service.copy([&](const Change&) { ++count; });
  EXPECT_EQ(count, 1u);
}

TEST(Replication, WaitsForTheRestOfAChangeAndRefusesWhatIsNone) {
  Change change;
  change.key = "key";
  change.value = "value";
  const std::string bytes = encode(change, 7);
  for (std::size_t part = 0; part < bytes.size(); ++part)
    EXPECT_FALSE(decode(std::string_view(bytes).substr(0, part)));
  EXPECT_EQ(decode(bytes)->number, 7u);
  ChangeHeader greedy;
  greedy.value_bytes = 0xffffffff;
  EXPECT_THROW(decode(bytes_of(greedy)), Error);
}

TEST(Replication, TheSecondServerDeletesWhatIsSharedWithTheFirstOneOrAfterIt) {
  for (const bool both_leave_the_first : {true, false}) {
    Server first, second;
    for (const int client : {1, 2}) {
      first.ask(client, 1, Verb::share, "job/", "2");
      first.ask(client, 2, Verb::set, "job/" + std::to_string(client), "value");
    }
    first.service.leave(1);
    if (both_leave_the_first) first.service.leave(2);
    second.follow(first.changes, first.changes.size());
    if (!both_leave_the_first) {
      second.ask(2, 3, Verb::share, "job/", "2");
      second.service.leave(2);
    }
    second.service.copy([](const Change& change) { ADD_FAILURE() << change.key << " is left"; });
  }
}

}  // namespace
}  // namespace tutti::rendezvous
