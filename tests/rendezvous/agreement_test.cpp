#include "rendezvous/agreement.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/random.h"
#include "counting_store.h"
#include "rendezvous/host.h"
#include "rendezvous/store/memory_store.h"
#include "test_job.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The texts of a rank: the first is equal on all ranks, the second is different on each, and the
// third has one of two values.
std::vector<std::string> words_of(int rank) {
  return {"algorithm=auto\nmessage_bytes=64K\n", std::string("\0\xff", 2) + std::to_string(rank),
          rank / 3 % 2 == 0 ? "even" : "odd"};
}

Roster roster_of(int size) {
  Roster all;
  all.columns.resize(3);
  for (int rank = 0; rank < size; ++rank) {
    const auto words = words_of(rank);
    all.append({{words.begin(), words.end()}, {}});
  }
  return all;
}

void expect_words_of_all(const std::vector<Texts>& columns, int size) {
  ASSERT_EQ(columns.size(), 3u);
  for (std::size_t column = 0; column < columns.size(); ++column) {
    ASSERT_EQ(columns[column].size(), static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank)
      ASSERT_EQ(columns[column][static_cast<std::size_t>(rank)], words_of(rank)[column]);
  }
}

TEST(Texts, OfManyRanksThatSayTheSameAreKeptOnce) {
  Texts all;
  for (int rank = 0; rank < 1000; ++rank) all.append(Texts(rank == 0 ? "first" : "other"));
  EXPECT_THAT(all.values(), ElementsAre("first", "other"));
  EXPECT_EQ(all.runs().size(), 2u);
  EXPECT_EQ(all.size(), 1000u);
  EXPECT_EQ(all[0], "first");
  EXPECT_EQ(all[1], "other");
  EXPECT_EQ(all[999], "other");
}

TEST(Texts, AreTheSameInWhateverPartsTheyWereJoined) {
  const Texts whole = roster_of(100).columns[2];
  for (const int cut : {1, 2, 3, 50, 99}) {
    Texts joined, behind;
    for (int rank = 0; rank < 100; ++rank)
      (rank < cut ? joined : behind).append(Texts(words_of(rank)[2]));
    joined.append(behind);
    EXPECT_EQ(joined, whole) << cut;
  }
}

TEST(Roster, ComesBackAsItWas) {
  for (const Roster& roster : {Roster{}, roster_of(1), roster_of(20), Roster{{}, "refused"}})
    EXPECT_EQ(decode_roster(encode(roster), 0), roster);
}

TEST(Roster, OfThousandsOfRanksThatAgreeIsHardlyLongerThanOfOne) {
  Roster one{{Texts(std::string(500, 's')), Texts("here"), Texts("")}, {}}, all = one;
  for (int rank = 1; rank < 4096; ++rank) all.append(one);
  EXPECT_EQ(encode(all).size(), encode(one).size());
}

TEST(Roster, IsCorruptWhereverItIsCutShortAndNamesTheRank) {
  const std::string whole = encode(roster_of(5));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const Error error =
        error_of([&] { decode_roster(std::string_view(whole).substr(0, bytes), 3); });
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("rank 3"));
  }
}

TEST(Roster, IsCorruptAndNothingWorseForRandomBytes) {
  SeededRandom random(1);
  const std::string whole = encode(roster_of(6));
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = whole;
    for (std::uint64_t flips = 1 + random.next() % 8; flips-- > 0;)
      bytes[random.next() % bytes.size()] = static_cast<char>(random.next());
    try {
      const Roster roster = decode_roster(bytes, 0);
      EXPECT_EQ(encode(roster), bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    }
  }
}

TEST(Roster, ThatClaimsMoreThanItHasTakesNoMemoryForIt) {
  std::string bytes = encode(Roster{{Texts("")}, {}});
  const std::uint32_t many = 0xffff'ffff;
  for (std::size_t at = 8; at + sizeof many <= bytes.size(); at += sizeof many) {
    std::string claims = bytes;
    std::memcpy(claims.data() + at, &many, sizeof many);
    try {
      EXPECT_LE(decode_roster(claims, 0).columns.size(), 1u);  // any end of a run is valid
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    }
  }
}

TEST(HostIdentity, IsTheSameTwiceAndNotEmpty) {
  EXPECT_FALSE(host_identity().empty());
  EXPECT_EQ(host_identity(), host_identity());
}

TEST(Location, ComesBackAsItWas) {
  for (const Location& location : {Location{"boot/17", {0, 1, 7}, 3}, Location{"name", {}}})
    EXPECT_EQ(parse_location(to_text(location)), location);
  for (const char* const wrong : {"nowhere", "here 0-x 0", "here 0-1", "here 0-1 ", "here 0-1 -1",
                                  "here 0-1 x", "here 0 1 2"})
    EXPECT_FALSE(parse_location(wrong)) << wrong;
}

TEST(Exchange, GivesEveryRankTheWordsOfAll) {
  for (const int size : {1, 2, 3, 5, 16, 21}) {
    MemoryStore store;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back([&, rank] {
        expect_words_of_all(exchange(store, "job", rank, size, words_of(rank), in_time()), size);
      });
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(Exchange, CarriesWordsThatFillManyValuesOfTheStore) {
  constexpr int kRanks = 40;
  MemoryStore store;
  const auto said = [](int rank) { return std::string(4096, static_cast<char>('0' + rank)); };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      const auto all = exchange(store, "job", rank, kRanks, {said(rank)}, in_time());
      for (int other = 0; other < kRanks; ++other)
        EXPECT_EQ(all[0][static_cast<std::size_t>(other)], said(other));
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST(Exchange, CostsEachRankOfThousandsALogarithmOfMessages) {
  constexpr int kRanks = 1024, kLogarithm = 10;
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::unique_ptr<CountingStore>> counting;
  for (int rank = 0; rank < kRanks; ++rank)
    counting.push_back(std::make_unique<CountingStore>(*store));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      expect_words_of_all(exchange(*counting[static_cast<std::size_t>(rank)], "job", rank, kRanks,
                                   words_of(rank), in_time()),
                          kRanks);
    });
  for (std::thread& rank : ranks) rank.join();
  for (const auto& rank : counting) EXPECT_LE(rank->calls, kLogarithm + 4);
}

TEST(Exchange, WorksAmongProcesses) {
  constexpr int kRanks = 4;
  const JobAddress job = job_of(kRanks);
  std::vector<std::unique_ptr<Child>> others;
  for (int rank = 1; rank < kRanks; ++rank)
    others.push_back(std::make_unique<Child>([rank, &job] {
      const auto store = join(job, rank);
      const auto said = exchange(*store, "p", rank, kRanks, words_of(rank), in_time());
      if (said != roster_of(kRanks).columns) _exit(2);
    }));
  const StoreServer server(job, at_unix_socket(job));
  const auto store = join(job, 0);
  EXPECT_EQ(exchange(*store, "p", 0, kRanks, words_of(0), in_time()), roster_of(kRanks).columns);
  for (const auto& other : others) EXPECT_EQ(other->wait(), 0);
}

TEST(Exchange, NamesEveryRankThatDidNotCome) {
  constexpr int kRanks = 6;
  MemoryStore store;
  std::vector<std::thread> ranks;
  for (const int rank : {0, 2, 4})
    ranks.emplace_back([&, rank] {
      const Error error = error_of(
          [&] { exchange(store, "job", rank, kRanks, words_of(rank), in(milliseconds(500))); });
      EXPECT_EQ(error.kind(), ErrorKind::timeout);
      EXPECT_THAT(error.what(), HasSubstr("3 of 6 ranks"));
      EXPECT_THAT(error.what(), HasSubstr("1, 3, 5"));
      EXPECT_THAT(error.what(), AllOf(HasSubstr("before the deadline"), Not(HasSubstr("START"))));
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST(Exchange, ReportsOnRank0WhoHasNotComeAndGoesOn) {
  constexpr int kRanks = 4;
  MemoryStore store;
  std::vector<std::string> lines;
  std::promise<void> reported;
  Log log(LogLevel::warn, [&](LogLevel, std::string_view line) {
    lines.emplace_back(line);
    reported.set_value();
  });
  std::vector<std::thread> ranks;
  const auto start = [&](int rank) {
    ranks.emplace_back([&, rank] {
      expect_words_of_all(
          exchange(store, "job", rank, kRanks, words_of(rank), in_time(), {&log, milliseconds(20)}),
          kRanks);
    });
  };
  for (const int rank : {2, 1, 0}) start(rank);
  reported.get_future().wait();
  start(3);
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr(" of 4 ranks have not come yet: "),
                                       HasSubstr("3;"), HasSubstr("rank 0 waits"))));
}

TEST(Exchange, AsksOnceForAllWhoDidNotComeToALargeJob) {
  constexpr int kRanks = 300;
  MemoryStore store;
  std::vector<std::unique_ptr<CountingStore>> counting;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks - 1; ++rank) {
    counting.push_back(std::make_unique<CountingStore>(store));
    ranks.emplace_back([&own = *counting.back(), rank] {
      const Error error = error_of(
          [&] { exchange(own, "job", rank, kRanks, words_of(rank), in(milliseconds(4000))); });
      EXPECT_EQ(error.kind(), ErrorKind::timeout);
      EXPECT_THAT(error.what(), HasSubstr("1 of 300 ranks"));
      EXPECT_THAT(error.what(), HasSubstr("deadline: 299;"));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  int calls = 0;
  for (const auto& rank : counting) calls += rank->calls;
  EXPECT_LT(calls, 20 * kRanks);
}

TEST(Exchange, CountsRatherThanNamesTheRanksOfALargeJobThatDidNotCome) {
  MemoryStore store;
  const Error error =
      error_of([&] { exchange(store, "job", 0, 1000, words_of(0), in(milliseconds(1))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("999 of 1000 ranks"));
  EXPECT_THAT(error.what(), HasSubstr("15, 16 and 983 more"));
}

TEST(Exchange, TellsEveryRankWhoseWordsCannotBeRead) {
  constexpr int kRanks = 8;
  for (const std::string& nonsense : {std::string("what is this"), encode(roster_of(2))}) {
    MemoryStore store;
    store.set("job/hello/5", nonsense, in_time());
    std::vector<std::thread> ranks;
    for (const int rank : {0, 1, 2, 3, 4, 6, 7})
      ranks.emplace_back([&, rank] {
        const Error error =
            error_of([&] { exchange(store, "job", rank, kRanks, words_of(rank), in_time()); });
        EXPECT_EQ(error.kind(), ErrorKind::corrupt);
        EXPECT_THAT(error.what(), HasSubstr("what rank 5 says at start-up cannot be read"));
      });
    for (std::thread& rank : ranks) rank.join();
  }
}

// The settings of each rank, in lines of the form "name=value".
Texts settings_of(const std::vector<std::string>& ranks) {
  Texts all;
  for (const std::string& rank : ranks) all.append(Texts(rank));
  return all;
}
const std::string kUsual = "tutti's version=0.1.0\nalgorithm=auto\nmessage_bytes=64K\n";

TEST(CheckAgreement, IsContentWithRanksThatAgree) {
  EXPECT_NO_THROW(check_agreement(settings_of(std::vector(8, kUsual)), 3));
}

TEST(CheckAgreement, NamesTheRankTheSettingAndBothValues) {
  const Texts settings = settings_of(
      {kUsual, kUsual, "tutti's version=0.2.0\nalgorithm=auto\nmessage_bytes=128K\n", kUsual});
  for (int rank = 0; rank < 4; ++rank) {
    const Error error = error_of([&] { check_agreement(settings, rank); });
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("rank {}: ", rank)),
                                    HasSubstr("rank 2: tutti's version is 0.2.0 there and 0.1.0 on "
                                              "rank 0; message_bytes is 128K there and 64K"),
                                    Not(HasSubstr("algorithm"))));
  }
}

TEST(CheckAgreement, NamesASettingThatOneSideDoesNotHave) {
  const Error error = error_of([&] {
    check_agreement(settings_of({kUsual, kUsual + "new_knob=1\n"}), 0);
  });
  EXPECT_THAT(error.what(), HasSubstr("new_knob is 1 there and not set on rank 0"));
}

TEST(CheckAgreement, StaysShortWhenHundredsDiffer) {
  std::vector<std::string> ranks(500, kUsual);
  ranks[0] = "tutti's version=old\n";
  const Error error = error_of([&] { check_agreement(settings_of(ranks), 0); });
  EXPECT_THAT(error.what(), HasSubstr("and 483 more"));
  EXPECT_LT(std::string(error.what()).size(), 4000u);
}

}  // namespace
}  // namespace tutti
