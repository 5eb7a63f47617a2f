// Kernels walk programs of real algorithms, two to four ranks of one process. Integers of 32 bits
// are summed, so that every order gives the same bits.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "on_gpu.h"
#include "rank.h"

namespace tutti::device {
namespace {

class Walks : public OnGpu {};

/// The vectors of one collective, in elements of 4 bytes: what each rank has, and must have.
struct Problem {
  Collective what;
  int ranks;
  std::uint64_t count;
  int root;

  std::uint64_t inputs() const {
    const bool all = what == Collective::reduce_scatter || what == Collective::scatter ||
                     what == Collective::all_to_all;
    return all ? count * static_cast<std::uint64_t>(ranks) : count;
  }
  std::uint64_t outputs() const {
    const bool all = what == Collective::all_gather || what == Collective::gather ||
                     what == Collective::all_to_all;
    return all ? count * static_cast<std::uint64_t>(ranks) : count;
  }
  float input(int rank, std::uint64_t i) const {
    return static_cast<float>((i * 7 + static_cast<std::uint64_t>(rank) * 1000) % 4093);
  }
  float sum(std::uint64_t i) const {
    float all = 0;
    for (int rank = 0; rank < ranks; ++rank) all += input(rank, i);
    return all;
  }
  bool has_output(int rank) const {
    return rank == root || (what != Collective::reduce && what != Collective::gather);
  }
  float output(int rank, std::uint64_t i) const {
    const auto own = static_cast<std::uint64_t>(rank);
    const std::uint64_t block = count == 0 ? 0 : i / count;
    const std::uint64_t at = count == 0 ? 0 : i % count;
    switch (what) {
      case Collective::all_reduce:
      case Collective::reduce: return sum(i);
      case Collective::broadcast: return input(root, i);
      case Collective::all_gather:
      case Collective::gather: return input(static_cast<int>(block), at);
      case Collective::reduce_scatter: return sum(own * count + i);
      case Collective::scatter: return input(root, own * count + i);
      default: return input(static_cast<int>(block), own * count + at);
    }
  }
};

/// A world of ranks that run one collective again and again.
class World {
 public:
  World(Gpu& gpu, const Problem& problem, const Algorithm& algorithm, std::uint64_t stripes = 1)
      : problem_(problem), rings_(gpu, 3 * kMessageBytes) {
    for (int rank = 0; rank < problem.ranks; ++rank) {
      const Schedule schedule = algorithm.plan({problem.what, rank, problem.ranks, problem.root});
      std::vector<Program> programs;
      for (std::uint64_t s = 0; s < stripes; ++s)
        programs.push_back(compile(schedule, call(), kMessageBytes, false, {s, stripes}));
      ranks_.push_back(std::make_unique<Rank>(gpu, programs, &rings_, rank));
      in_.push_back(ranks_.back()->array<float>(problem.inputs()));
      out_.push_back(ranks_.back()->array<float>(problem.outputs()));
    }
  }
  static constexpr std::size_t kMessageBytes = 512;

  Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }

  /// Runs all ranks once.
  void run(const char* kernel, std::uint32_t threads = kThreads) {
    for (int number = 0; number < problem_.ranks; ++number) begin(number);
    run_all(ranks_, kernel, threads);
  }
  void begin(int number) {
    const auto r = static_cast<std::size_t>(number);
    for (std::uint64_t i = 0; i < problem_.inputs(); ++i) in_[r][i] = problem_.input(number, i);
    std::fill_n(out_[r], problem_.outputs(), -1.0f);
    rank(number).begin(reinterpret_cast<std::byte*>(in_[r]), reinterpret_cast<std::byte*>(out_[r]));
  }
  void check() const {
    for (int number = 0; number < problem_.ranks; ++number) {
      if (!problem_.has_output(number)) continue;
      for (std::uint64_t i = 0; i < problem_.outputs(); ++i)
        ASSERT_EQ(out_[static_cast<std::size_t>(number)][i], problem_.output(number, i))
            << "rank " << number << ", element " << i;
    }
  }
  std::uint64_t launches() const {
    return std::accumulate(
        ranks_.begin(), ranks_.end(), std::uint64_t{0},
        [](std::uint64_t all, const auto& rank) { return all + rank->call().launch; });
  }

 private:
  CallSignature call() const {
    CallSignature call;
    call.what = problem_.what;
    call.type = DataType::f32;
    call.count = problem_.count;
    call.root = problem_.root;
    return call;
  }
  const Problem problem_;
  Rings rings_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<float*> in_, out_;
};

TEST_F(Walks, OfAllAlgorithmsGiveTheResultOfEachCollective) {
  for (const Algorithm& algorithm : algorithms())
    for (const auto what : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter,
                            Collective::broadcast, Collective::all_gather, Collective::gather,
                            Collective::scatter, Collective::all_to_all})
      for (const int ranks : {2, 3}) {
        if (!algorithm.knows(what, ranks)) continue;
        SCOPED_TRACE(std::string(algorithm.name) + " " + std::string(to_string(what)) + ", " +
                     std::to_string(ranks) + " ranks");
        World world(*gpu_, {what, ranks, 301, ranks - 1}, algorithm);
        for (int call = 0; call < 2; ++call) {
          world.run("tutti_run_f32");
          world.check();
          if (HasFailure()) return;
        }
      }
}

TEST_F(Walks, OfProgramsThatOnlyCopyNeedNoType) {
  World world(*gpu_, {Collective::all_gather, 4, 77, 0}, named("ring"));
  world.run("tutti_run_bytes");
  world.check();
}

TEST_F(Walks, OfStripesAndEmptyVectorsEnd) {
  for (const std::uint64_t count : {0, 1, 10, 2000})
    for (const std::uint64_t stripes : {1, 2}) {
      SCOPED_TRACE(std::to_string(count) + " elements, " + std::to_string(stripes) + " stripes");
      World world(*gpu_, {Collective::all_reduce, 2, count, 0}, named("ring"), stripes);
      for (int call = 0; call < 3; ++call) world.run("tutti_run_f32");
      world.check();
    }
}

TEST_F(Walks, OfBlocksWithFewerThreadsThanOperandsEnd) {
  for (const std::uint32_t threads : {1, 3})
    for (const char* name : {"all_pairs", "one_shot"}) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(threads) + " threads");
      World world(*gpu_, {Collective::all_reduce, 4, 300, 0}, named(name));
      world.run("tutti_run_f32", threads);
      world.check();
    }
}

TEST_F(Walks, WithoutPatienceGoOnWhereTheyHaveStopped) {
  World world(*gpu_, {Collective::all_reduce, 3, 3000, 0}, named("ring"));
  for (int number = 0; number < 3; ++number) world.rank(number).call().patience = 1;
  for (int call = 1; call <= 2; ++call) {
    world.run("tutti_run_f32");
    world.check();
    EXPECT_GT(world.launches(), 10u * static_cast<unsigned>(call));
  }
}

TEST_F(Walks, ThatWaitForAPeerEndAndSayForWhich) {
  World world(*gpu_, {Collective::all_reduce, 2, 100, 0}, named("ring"));
  world.begin(0);
  EXPECT_FALSE(world.rank(0).launch("tutti_run_f32", kThreads));
  EXPECT_FALSE(world.rank(0).launch("tutti_run_f32", kThreads));
  const Control& control = world.rank(0).control();
  EXPECT_EQ(control.entered, 2u);
  EXPECT_EQ(control.exited, 2u);
  EXPECT_EQ(control.done, 0u);
  EXPECT_EQ(control.mismatched, 0u);
  bool awaits_peer = false;
  for (std::uint32_t b = 0; b < world.rank(0).call().blocks; ++b)
    awaits_peer |= world.rank(0).call().awaited[b] == 1;
  EXPECT_TRUE(awaits_peer);
}

// The kernel of the next call may have run by the time of a second store.
TEST_F(Walks, ThatEndStoreWhetherTheirCallIsDoneInOneWord) {
  World world(*gpu_, {Collective::broadcast, 2, 100, 0}, named("knomial_tree"));
  const Control &root = world.rank(0).control(), &other = world.rank(1).control();
  world.begin(1);
  EXPECT_FALSE(world.rank(1).launch("tutti_run_f32", kThreads));
  EXPECT_EQ(other.exited, 1u);
  EXPECT_EQ(other.done, 0u);
  world.begin(0);
  EXPECT_TRUE(world.rank(0).launch("tutti_run_f32", kThreads));
  EXPECT_EQ(root.exited, 0u);
  EXPECT_TRUE(world.rank(1).launch("tutti_run_f32", kThreads));
  EXPECT_EQ(other.exited, 1u);
}

TEST_F(Walks, ThatGetMessagesOfAnotherCallSayWhatTheyExpected) {
  World world(*gpu_, {Collective::broadcast, 2, 100, 0}, named("knomial_tree"));
  world.begin(0);
  world.rank(0).call().fingerprint ^= 1;
  world.rank(0).launch("tutti_run_f32", kThreads);
  world.begin(1);
  EXPECT_FALSE(world.rank(1).launch("tutti_run_f32", kThreads));
  const Control& control = world.rank(1).control();
  EXPECT_EQ(control.mismatched, 1u);
  EXPECT_EQ(control.mismatched_peer, 0);
  EXPECT_EQ(control.expected.fingerprint, world.rank(1).call().fingerprint);
  EXPECT_EQ(control.found.fingerprint, world.rank(0).call().fingerprint);
  EXPECT_EQ(control.expected.length, control.found.length);
  EXPECT_EQ(control.exited, 1u);
}

TEST_F(Walks, ThatAreAbortedTouchNothing) {
  World world(*gpu_, {Collective::broadcast, 2, 100, 0}, named("knomial_tree"));
  world.begin(0);
  world.rank(0).launch("tutti_run_f32", kThreads);
  world.begin(1);
  world.rank(1).control().aborted = 1;
  EXPECT_FALSE(world.rank(1).launch("tutti_run_f32", kThreads));
  EXPECT_EQ(world.rank(1).control().exited, 0u);
  EXPECT_EQ(world.rank(1).control().done, 0u);
  const Counts& counts = *world.rank(1).call().counts;
  EXPECT_EQ(counts.started, world.rank(1).call().blocks);
  EXPECT_EQ(counts.ended, counts.started);
  EXPECT_EQ(*reinterpret_cast<const float*>(world.rank(1).call().output), -1.0f);
}

TEST_F(Walks, ThatWaitEndSoonOnceTheyAreAborted) {
  World world(*gpu_, {Collective::broadcast, 2, 100, 0}, named("knomial_tree"));
  world.begin(1);
  world.rank(1).call().patience = 0xFFFF'FFFF;
  std::thread launch([&] { world.rank(1).launch("tutti_run_f32", kThreads); });
  auto& control = world.rank(1).control();
  while (__atomic_load_n(&control.entered, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
  __atomic_store_n(&control.aborted, 1, __ATOMIC_RELEASE);
  launch.join();
  const Counts& counts = *world.rank(1).call().counts;  // A block may see the abort as it begins.
  EXPECT_EQ(counts.started, world.rank(1).call().blocks);
  EXPECT_EQ(counts.ended, counts.started);
  EXPECT_EQ(control.done, 0u);
}

}  // namespace
}  // namespace tutti::device

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
