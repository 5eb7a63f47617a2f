// Tests of a job that grows over the connections that its ranks have, with ranks as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "growing_job.h"
#include "processes.h"
#include "rendezvous/store/file_store.h"
#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

// Returns the names of this process's sockets, which the kernel numbers.
std::set<std::string> sockets() {
  std::set<std::string> found;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(file.path(), gone).string();
    if (what.starts_with("socket:")) found.insert(what);
  }
  return found;
}

std::ptrdiff_t thread_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// Has every rank reduce, gather, send to each other one and receive from it, with memory of every
// kind, and use communicators that are split off.
void use(Communicator& comm) {
  const int ranks = comm.size();
  for (const std::size_t count : {1u, 100u, 5'000u, 300'000u}) {
    std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
    comm.all_reduce(std::span(data));
    expect(data == std::vector<float>(count, static_cast<float>(ranks * (ranks + 1) / 2)), "a sum");
  }
  Communicator turned = comm.split(0, -comm.rank()).value();
  std::vector<int> all = who(turned, comm.rank());
  std::reverse(all.begin(), all.end());
  std::vector<int> expected(static_cast<std::size_t>(ranks));
  std::iota(expected.begin(), expected.end(), 0);
  expect(all == expected, "the ranks of a part");
  constexpr std::size_t kBytes = 1 << 20;
  Buffer shared = Buffer::allocate(comm, 2 * kBytes);
  auto* const bytes = reinterpret_cast<std::uint8_t*>(shared.data());
  const std::span out(bytes, kBytes), in(bytes + kBytes, kBytes);
  for (int distance = 1; distance < ranks; ++distance) {
    const int to = (comm.rank() + distance) % ranks,
              from = (comm.rank() - distance + ranks) % ranks;
    std::ranges::fill(out, static_cast<std::uint8_t>(comm.rank()));
    Work sent = comm.send_async(std::span<const std::uint8_t>(out), to);
    comm.recv(in, from);
    sent.wait();
    const auto wrong = [&](std::uint8_t byte) { return byte != from; };
    expect(std::ranges::none_of(in, wrong), "a message of registered memory");
    comm.barrier();
  }
}

using KeptConnections = GrowingJob;

TEST_F(KeptConnections, OfAJobThatGrowsAreUsedAndOnlyThoseToNewcomersAreMade) {
  over(kBoth, [&] {
    Processes ranks(5, [&](int rank) {
      if (rank == 4) {
        Communicator comm = come();
        use(comm);
        return use(comm);
      }
      Communicator comm = start(rank, 4);
      use(comm);
      const std::set<std::string> before = sockets();
      const std::ptrdiff_t threads = thread_count();
      Communicator grown = comm.grow(1, 20s);
      use(grown);
      use(comm);  // It goes on beside it, over the same connections.
      const bool over_tcp = std::string_view(transport_) == "tcp";
      // Over TCP there are two for each peer, one of which a thread watches.
      expect(sockets().size() <= before.size() + (over_tcp ? 2 : 1), "another connection");
      expect(thread_count() <= threads + (over_tcp ? 1 : 0), "another thread");
      comm = std::move(grown);  // The old one ends, and the connections stay.
      use(comm);
    });
    for (int rank = 0; rank < 5; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// After some times the ranks connect anew, because every time adds transports.
TEST_F(KeptConnections, OfAJobThatGrowsAgainAndAgainCarryTheSameAndDoNotPileUp) {
  constexpr int kTimes = 6;
  over(kBoth, [&] {
    Sign grown;  // once for each newcomer
    Processes ranks(2 + kTimes, [&](int rank) {
      std::optional<Communicator> comm;
      if (rank < 2) {
        comm = start(rank, 2);
      } else {
        if (rank > 2) grown.wait(static_cast<std::uint32_t>(rank - 2));
        comm = come();
        use(*comm);
      }
      while (comm->size() < 2 + kTimes) {
        comm = comm->grow(1, 20s);
        use(*comm);
        if (rank == 0) grown.give();
      }
      const std::size_t peers = 1 + kTimes, each = std::string_view(transport_) == "tcp" ? 2 : 1;
      // Rank 0, and the rank that stands by for it, have connections of the store's clients, too.
      const std::size_t count = sockets().size();
      expect(rank < 2 || count <= each * peers + 4, std::to_string(count) + " sockets");
      // The last rank dies, and one of the first.
      comm->barrier();
      if (rank == 1 || rank == 1 + kTimes) raise(SIGKILL);
      fail(*comm);
      comm = comm->shrink(20s);
      expect(comm->size() == kTimes, "two fewer");
      use(*comm);
    });
    for (const int rank : {0, 2, kTimes}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(KeptConnections, ServeTwoCommunicatorsOfTwoThreadsThatSleepAndWakeEachOther) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      std::optional<Communicator> comm, grown;
      if (rank < 2) {
        comm = start(rank, 2);
        grown = comm->grow(1, 20s);
      } else {
        grown = come();
      }
      constexpr int kRounds = 60;
      // Each call finds the others asleep: one rank of each communicator is late in turn.
      const auto work = [&](Communicator& its) {
        for (int round = 0; round < kRounds; ++round) {
          if (round % its.size() == its.rank()) std::this_thread::sleep_for(2ms);
          int sum = its.rank();
          its.all_reduce(std::span(&sum, 1));
          expect(sum == its.size() * (its.size() - 1) / 2, "a sum");
          Work behind = its.barrier_async();
          behind.wait();
        }
      };
      std::string old;
      std::thread other([&] {
        if (comm) old = outcome_of([&] { work(*comm); });
      });
      const std::string fresh = outcome_of([&] { work(*grown); });
      other.join();
      expect(old.empty() && fresh.empty(), old + fresh);
      if (rank == 0) comm.reset();  // What it shares with the other goes on.
      use(*grown);
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// All threads that wait hear of it, whichever connections they use.
TEST_F(KeptConnections, TellAtOnceOfTheDeathOfANewcomerAndOfAnOldRank) {
  for (const int victim : {1, 3})
    over(kBoth, [&] {
      Processes ranks(4, [&](int rank) {
        std::optional<Communicator> grown;
        if (rank < 3)
          grown = start(rank, 3).grow(1, 20s);
        else
          grown = come();
        use(*grown);
        if (rank == victim) {
          std::this_thread::sleep_for(100ms);  // The others sleep by then.
          raise(SIGKILL);
        }
        const auto start = std::chrono::steady_clock::now();
        const std::string why = outcome_of([&] { grown->barrier(); });
        expect(why.starts_with("peer_lost") &&
                   why.find("rank " + std::to_string(victim)) != std::string::npos,
               why);
        expect(std::chrono::steady_clock::now() - start < 4s, "long before the deadline");
        *grown = grown->shrink(20s);
        use(*grown);
      });
      for (int rank = 0; rank < 4; ++rank)
        EXPECT_THAT(ranks.outcome(rank), rank == victim ? "ended by signal 9" : "");
    });
}

// Forwards to another store, and kills the process once it has introduced itself to the members of
// a new communicator.
class DiesIntroduced final : public Store {
 public:
  explicit DiesIntroduced(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    store_->set(key, value, deadline);
    const auto has = [key](std::string_view part) { return key.find(part) != key.npos; };
    if (has("/again/") && has("/hello/") && !has("/kept/")) raise(SIGKILL);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    return store_->get(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    return store_->add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override { store_->wait(key, deadline); }

 private:
  const std::shared_ptr<Store> store_;
};

// The others have made transports by then, and some have joined each other.
TEST_F(KeptConnections, AreOfUseStillWhereARankOrANewcomerDiesOnceItIsIntroduced) {
  for (const int victim : {1, 3})
    over(kBoth, [&] {
      Processes ranks(4, [&](int rank) {
        const auto soon = std::chrono::steady_clock::now() + 20s;
        std::shared_ptr<Store> store = rank < 3 ? std::make_shared<FileStore>(path_, rank, 3, soon)
                                                : std::make_shared<FileStore>(path_, soon);
        if (rank == victim) store = std::make_shared<DiesIntroduced>(store);
        if (rank == 3) {
          static_cast<void>(outcome_of([&] { Communicator::join(store, config()); }));
          return;
        }
        Communicator comm = Communicator::create(store, rank, 3, config());
        use(comm);
        const std::string why = outcome_of([&] { comm.grow(1, 2s); });
        expect(why.starts_with("peer_lost") || why.starts_with("timeout"), why);
        if (victim == 1) {
          fail(comm);
          comm = comm.shrink(20s);
        }
        use(comm);
      });
      for (int rank = 0; rank < 4; ++rank)
        EXPECT_THAT(ranks.outcome(rank), rank == victim ? "ended by signal 9" : "") << rank;
    });
}

// The kernel lets few descriptors watch each other in a row: one more for those that are kept would
// be too many.
TEST_F(KeptConnections, WakeAsManyThreadsThatSleepAsBefore) {
  constexpr int kThreads = 120;
  over({"shm"}, [&] {
    Processes ranks(3, [&](int rank) {
      std::optional<Communicator> grown;
      if (rank < 2)
        grown = start(rank, 2).grow(1, 20s);
      else
        grown = come();
      std::vector<Communicator> parts;
      for (int part = 0; part < kThreads; ++part) parts.push_back(grown->dup());
      std::vector<std::string> outcomes(kThreads);
      std::vector<std::thread> threads;
      for (int part = 0; part < kThreads; ++part)
        threads.emplace_back([&, part] {
          const auto each = static_cast<std::size_t>(part);
          outcomes[each] = outcome_of([&] {
            if (rank == 0) std::this_thread::sleep_for(500ms);
            parts[each].barrier();
          });
        });
      for (std::thread& thread : threads) thread.join();
      for (const std::string& outcome : outcomes) expect(outcome.empty(), outcome);
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(KeptConnections, ARankWithBuffersAndPartsMayEndInAnyOrder) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      std::optional<Communicator> comm, grown, part;
      std::optional<Buffer> first, second;
      if (rank < 2) {
        comm = start(rank, 2);
        first = Buffer::allocate(*comm, 100'000);
        grown = comm->grow(1, 20s);
      } else {
        grown = come();
      }
      second = Buffer::allocate(*grown, 100'000);
      part = grown->split(rank % 2, rank);
      grown->barrier();
      switch (rank) {
        case 0:
          comm.reset();
          grown.reset();
          part.reset();
          break;
        case 1:
          part.reset();
          grown.reset();
          second.reset();
          comm.reset();
          break;
        default: second.reset(); part.reset();
      }
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

}  // namespace
}  // namespace tutti::test
