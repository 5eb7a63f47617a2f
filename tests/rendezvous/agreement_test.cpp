#include "rendezvous/agreement.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/random.h"
#include "rendezvous/memory_store.h"
#include "test_job.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Hello hello_of(int rank) {
  Hello hello;
  hello.version = "0.1.0";
  hello.settings = "algorithm=auto\nmessage_bytes=64K\n";
  hello.schedules = 0x1234;
  hello.costs = "1 2 3";
  hello.host = host_identity();
  hello.pid = 100 + rank;
  hello.cpus = {0, 1, 7};
  hello.addresses = {{"shm", std::string("\0\xff binary", 9)}, {"local", ""}};
  return hello;
}

std::vector<Hello> hellos_of(int size) {
  std::vector<Hello> hellos;
  for (int rank = 0; rank < size; ++rank) hellos.push_back(hello_of(rank));
  return hellos;
}

TEST(Hello, ComesBackAsItWas) {
  const Hello hello = hello_of(3);
  EXPECT_EQ(decode_hello(encode(hello), 3), hello);
  EXPECT_EQ(decode_hello(encode(Hello{}), 0), Hello{});
}

TEST(Hello, IsCorruptWhereverItIsCutShortAndNamesTheRank) {
  const std::string whole = encode(hello_of(3));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    try {
      const Hello hello = decode_hello(std::string_view(whole).substr(0, bytes), 3);
      EXPECT_LT(hello.addresses.size(), 2u) << "cut after " << bytes;  // between two addresses
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      EXPECT_THAT(error.what(), HasSubstr("rank 3"));
    }
  }
}

TEST(Hello, IsCorruptAndNothingWorseForRandomBytes) {
  SeededRandom random(1);
  const std::string whole = encode(hello_of(0));
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = whole;
    for (std::uint64_t flips = 1 + random.next() % 8; flips-- > 0;)
      bytes[random.next() % bytes.size()] = static_cast<char>(random.next());
    try {
      decode_hello(bytes, 0);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    }
  }
}

TEST(HostIdentity, IsTheSameTwiceAndNotEmpty) {
  EXPECT_FALSE(host_identity().empty());
  EXPECT_EQ(host_identity(), host_identity());
}

TEST(ExchangeHellos, GivesEveryRankTheHellosOfAll) {
  constexpr int kRanks = 16;
  MemoryStore store;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      const auto hellos = exchange_hellos(store, "job", rank, kRanks, hello_of(rank), in_time());
      EXPECT_EQ(hellos, hellos_of(kRanks));
    });
  for (std::thread& rank : ranks) rank.join();
}

/// Counts what is asked of it.
class Counting final : public Store {
 public:
  explicit Counting(Store& store) : store_(store) {}
  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    ++calls;
    store_.set(key, value, deadline);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    ++calls;
    return store_.get(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    ++calls;
    return store_.add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override {
    ++calls;
    store_.wait(key, deadline);
  }
  int calls = 0;

 private:
  Store& store_;
};

TEST(ExchangeHellos, CostsARankAFewMessagesHoweverManyRanksThereAre) {
  constexpr int kRanks = 3000;
  MemoryStore store;
  for (int rank = 1; rank < kRanks - 1; ++rank)
    store.set(fmt::format("job/hello/{}", rank), encode(hello_of(rank)), in_time());
  Counting last(store);
  std::thread other([&] {
    const auto hellos =
        exchange_hellos(last, "job", kRanks - 1, kRanks, hello_of(kRanks - 1), in_time());
    EXPECT_EQ(hellos, hellos_of(kRanks));
  });
  exchange_hellos(store, "job", 0, kRanks, hello_of(0), in_time());
  other.join();
  EXPECT_LE(last.calls, 8);
}

TEST(ExchangeHellos, WorksAmongProcesses) {
  constexpr int kRanks = 4;
  const JobAddress job = job_of(kRanks);
  std::vector<std::unique_ptr<Child>> others;
  for (int rank = 1; rank < kRanks; ++rank)
    others.push_back(std::make_unique<Child>([rank, &job] {
      const auto store = join(job, rank);
      const auto hellos = exchange_hellos(*store, "p", rank, kRanks, hello_of(rank), in_time());
      if (hellos != hellos_of(kRanks)) _exit(2);
    }));
  const StoreServer server(job);
  const auto store = join(job, 0);
  EXPECT_EQ(exchange_hellos(*store, "p", 0, kRanks, hello_of(0), in_time()), hellos_of(kRanks));
  for (const auto& other : others) EXPECT_EQ(other->wait(), 0);
}

TEST(ExchangeHellos, NamesEveryRankThatDidNotCome) {
  constexpr int kRanks = 6;
  MemoryStore store;
  std::vector<std::thread> ranks;
  for (const int rank : {0, 2, 4})
    ranks.emplace_back([&, rank] {
      const Error error = error_of([&] {
        exchange_hellos(store, "job", rank, kRanks, hello_of(rank), in(milliseconds(500)));
      });
      EXPECT_EQ(error.kind(), ErrorKind::timeout);
      EXPECT_THAT(error.what(), HasSubstr("3 of 6 ranks"));
      EXPECT_THAT(error.what(), HasSubstr("1, 3, 5"));
      EXPECT_THAT(error.what(), HasSubstr("TUTTI_STARTUP_TIMEOUT_MS"));
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST(ExchangeHellos, CountsRatherThanNamesTheRanksOfALargeJobThatDidNotCome) {
  MemoryStore store;
  const Error error =
      error_of([&] { exchange_hellos(store, "job", 0, 1000, hello_of(0), in(milliseconds(1))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("999 of 1000 ranks"));
  EXPECT_THAT(error.what(), HasSubstr("15, 16 and 983 more"));
}

TEST(ExchangeHellos, NamesTheRankWhoseHelloCannotBeRead) {
  MemoryStore store;
  store.set("job/hello/1", "what is this", in_time());
  const Error error =
      error_of([&] { exchange_hellos(store, "job", 0, 2, hello_of(0), in_time()); });
  EXPECT_EQ(error.kind(), ErrorKind::corrupt);
  EXPECT_THAT(error.what(), HasSubstr("rank 1"));
}

TEST(CheckAgreement, IsContentWithRanksThatDifferOnlyInWhoTheyAre) {
  EXPECT_NO_THROW(check_agreement(hellos_of(8), 3));
}

TEST(CheckAgreement, NamesTheRankTheSettingAndBothValues) {
  std::vector<Hello> hellos = hellos_of(4);
  hellos[2].settings = "algorithm=auto\nmessage_bytes=128K\n";
  for (int rank = 0; rank < 4; ++rank) {
    const Error error = error_of([&] { check_agreement(hellos, rank); });
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(fmt::format("rank {}: ", rank)),
                      HasSubstr("rank 2: message_bytes is 128K there and 64K on rank 0"),
                      Not(HasSubstr("algorithm"))));
  }
}

TEST(CheckAgreement, NamesVersionsAndTablesOfAlgorithmsThatDiffer) {
  std::vector<Hello> hellos = hellos_of(3);
  hellos[1].version = "0.2.0";
  hellos[2].schedules = 0x99;
  const Error error = error_of([&] { check_agreement(hellos, 0); });
  EXPECT_THAT(error.what(), HasSubstr("rank 1: tutti's version is 0.2.0 there and 0.1.0"));
  EXPECT_THAT(error.what(), HasSubstr("rank 2: the table of algorithms is 0000000000000099"));
}

TEST(CheckAgreement, NamesASettingThatOneSideDoesNotHave) {
  std::vector<Hello> hellos = hellos_of(2);
  hellos[1].settings += "new_knob=1\n";
  const Error error = error_of([&] { check_agreement(hellos, 0); });
  EXPECT_THAT(error.what(), HasSubstr("new_knob is 1 there and not set on rank 0"));
}

TEST(CheckAgreement, StaysShortWhenHundredsDiffer) {
  std::vector<Hello> hellos = hellos_of(500);
  hellos[0].version = "old";
  const Error error = error_of([&] { check_agreement(hellos, 0); });
  EXPECT_THAT(error.what(), HasSubstr("and 483 more"));
  EXPECT_LT(std::string(error.what()).size(), 4000u);
}

}  // namespace
}  // namespace tutti
