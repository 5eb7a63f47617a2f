// Tests of communicators over several transports at once: the routes that ranks choose, and those
// to which they fall back.
#include <gtest/gtest.h>

#include <algorithm>

#include "../rendezvous/counting_store.h"
#include "../transport/mail_transport.h"
#include "runtime/communicator_impl.h"
#include "runtime/membership/setup.h"
#include "threads.h"

namespace tutti::test {
namespace {

constexpr mail::Kind kSlow{"slow", 1'000'000'000};
constexpr mail::Kind kFast{"fast", 9'000'000'000, 8192, 2};  // It connects islands of two ranks.
constexpr mail::Kind kShy{"shy",    50'000'000'000,
                          16 << 10, 1'000'000,
                          true,     [](int rank, int peer) { return rank + peer != 3; }};
constexpr mail::Kind kMissing{"missing",
                              90'000'000'000,
                              16 << 10,
                              1'000'000,
                              false,
                              [](int, int) { return true; },
                              [](int rank) { return rank != 2; }};

std::int64_t rate_to(const CommunicatorParts& parts, int peer) {
  return parts.transport->link(peer).bytes_per_second;
}

/// Starts `size` ranks with these transports, runs `body` on each and returns their outcomes.
Outcomes start(int size, const std::vector<TransportEntry>& known,
               const std::function<void(CommunicatorParts)>& body, int* most_calls = nullptr) {
  MemoryStore store;
  Outcomes outcomes(static_cast<std::size_t>(size));
  std::vector<std::shared_ptr<CountingStore>> stores;
  for (int rank = 0; rank < size; ++rank) stores.push_back(std::make_shared<CountingStore>(store));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      outcomes[index] = outcome_of(
          [&] { body(join_store(stores[index], rank, size, quick_config(), {}, known)); });
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : stores)
    if (most_calls != nullptr) *most_calls = std::max(*most_calls, one->calls);
  return outcomes;
}

// Runs sums of every size, and messages between all ranks.
void work(CommunicatorParts parts) {
  Communicator comm = CommunicatorImpl::make(std::move(parts));
  const int ranks = comm.size();
  for (const std::size_t count : {0u, 1u, 1'000u, 100'000u}) {
    std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
    comm.all_reduce(std::span(data));
    if (data != std::vector<float>(count, static_cast<float>(ranks * (ranks + 1) / 2)))
      throw Error(ErrorKind::internal, "a sum");
  }
  std::vector<int> mine(50'000, comm.rank()), theirs(mine.size());
  for (int step = 1; step < ranks; ++step) {
    Work sent = comm.send_async(std::span<const int>(mine), (comm.rank() + step) % ranks);
    const int from = (comm.rank() + ranks - step) % ranks;
    comm.recv(std::span(theirs), from);
    sent.wait();
    if (theirs != std::vector<int>(theirs.size(), from))
      throw Error(ErrorKind::internal, "a message");
  }
  comm.barrier();
}

TEST(Routes, RanksUseTheCheapestTransportForEachPeerSideBySide) {
  const auto outcomes =
      start(6, {mail::entry<kSlow>(), mail::entry<kFast>()}, [](CommunicatorParts parts) {
        for (int peer = 0; peer < parts.size; ++peer) {
          if (peer == parts.rank) continue;
          const bool island = peer / 2 == parts.rank / 2;
          EXPECT_EQ(rate_to(parts, peer), (island ? kFast : kSlow).bytes_per_second);
        }
        work(std::move(parts));
      });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(Routes, TheCutIsTheLeastOfAllPairsAndMessagesOfAPairAreAsLargeAsItsOwn) {
  const auto outcomes =
      start(3, {mail::entry<kSlow>(), mail::entry<kFast>()}, [](CommunicatorParts parts) {
        EXPECT_EQ(parts.message_bytes, kFast.largest_message) << "rank 2, too, agrees to it";
        EXPECT_EQ(parts.transport->link(parts.rank == 2 ? 0 : 2).largest_message,
                  kSlow.largest_message);
        work(std::move(parts));
      });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(Routes, SharedMemoryStandsBesideWhatIsCheaperForSome) {
  static constexpr mail::Kind kBest{"best", 900'000'000'000, 64 << 10, 2};
  std::vector<TransportEntry> known = transports();
  known.push_back(mail::entry<kBest>());
  const auto outcomes = start(4, known, [](CommunicatorParts parts) {
    EXPECT_FALSE(parts.rings);
    for (int peer = 0; peer < parts.size; ++peer) {
      if (peer == parts.rank) continue;
      EXPECT_EQ(parts.transport->link(peer).rings, peer / 2 != parts.rank / 2);
    }
    work(std::move(parts));
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

// Ranks 0 and 1 use the mail transport, which reads registered memory. All other pairs use shared
// memory that both have mapped.
TEST(Routes, ABufferIsSentWithoutACopyOverEachLinkThatReadsRegisteredMemory) {
  static constexpr mail::Kind kBest{"best", 900'000'000'000, 64 << 10, 2};
  std::vector<TransportEntry> known = transports();
  known.push_back(mail::entry<kBest>());
  const std::size_t before = mail::registered_bytes();
  const auto outcomes = start(3, known, [](CommunicatorParts parts) {
    Communicator comm = CommunicatorImpl::make(std::move(parts));
    constexpr std::size_t kCount = 100'000;
    Buffer input = Buffer::allocate(comm, kCount * sizeof(float));
    Buffer output = Buffer::allocate(comm, kCount * sizeof(float));
    EXPECT_TRUE(input.shared());
    auto* in = reinterpret_cast<float*>(input.data());
    auto* out = reinterpret_cast<float*>(output.data());
    std::fill(in, in + kCount, static_cast<float>(comm.rank() + 1));
    for (int round = 0; round < 3; ++round)
      comm.all_reduce(in, out, kCount, DataType::f32, Op::sum);
    if (std::count(out, out + kCount, 6.0f) != static_cast<long>(kCount))
      throw Error(ErrorKind::internal, "a sum");
    comm.barrier();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_GT(mail::registered_bytes(), before);
}

TEST(Routes, PairsThatCannotConnectFallBackAndTheOthersDoNot) {
  const auto outcomes =
      start(4, {mail::entry<kSlow>(), mail::entry<kShy>()}, [](CommunicatorParts parts) {
        for (int peer = 0; peer < parts.size; ++peer) {
          if (peer == parts.rank) continue;
          const bool fails = peer + parts.rank == 3;
          EXPECT_EQ(rate_to(parts, peer), (fails ? kSlow : kShy).bytes_per_second);
        }
        work(std::move(parts));
      });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(Routes, WhatOneRankCannotMakeIsLeftByAllItsPairs) {
  const auto outcomes =
      start(4, {mail::entry<kSlow>(), mail::entry<kMissing>()}, [](CommunicatorParts parts) {
        for (int peer = 0; peer < parts.size; ++peer) {
          if (peer == parts.rank) continue;
          const bool missing = peer == 2 || parts.rank == 2;
          EXPECT_EQ(rate_to(parts, peer), (missing ? kSlow : kMissing).bytes_per_second);
        }
        work(std::move(parts));
      });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(Routes, WhereNothingIsLeftEveryRankSaysWhichPairAndWhy) {
  const auto outcomes = start(4, {mail::entry<kFast>(), mail::entry<kMissing>()}, work);
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("unavailable: no transport joins rank 0 and rank 2"),
                                   HasSubstr("missing: rank 2: there is no post office"),
                                   HasSubstr("fast: the mail does not leave its island"))));
  const auto lost = start(4, {mail::entry<kShy>()}, work);
  EXPECT_THAT(lost,
              Each(AllOf(StartsWith("unavailable: no transport joins rank 0 and rank 3"),
                         HasSubstr("shy: it did not connect them: rank 0: the mail is lost"))));
}

// Most jobs have one transport for all pairs, and pay the cost of this start.
TEST(Routes, OneTransportForAllTakesOneExchange) {
  int one = 0, two = 0;
  EXPECT_THAT(start(4, {mail::entry<kSlow>()}, work, &one), Each(IsEmpty()));
  EXPECT_THAT(start(4, {mail::entry<kSlow>(), mail::entry<kFast>()}, work, &two), Each(IsEmpty()));
  EXPECT_LE(one, 2 + 5);
  EXPECT_GT(two, one);
}

TEST(Routes, ARankAloneHasOneToo) {
  EXPECT_THAT(start(1, {mail::entry<kSlow>(), mail::entry<kShy>()}, work), Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
