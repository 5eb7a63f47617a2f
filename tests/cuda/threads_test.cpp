// Threads of a block, lanes of a warp, and blocks that wait for each other.
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "tests/cuda/launch.h"

namespace tutti::stand_in::test {
namespace {

using Word = std::uint32_t;
using Wide = std::uint64_t;

std::vector<Word> some_words(std::size_t count) {
  std::vector<Word> words(count);
  for (std::size_t each = 0; each < count; ++each)
    words[each] = static_cast<Word>(each * each * 31 % 997);
  return words;
}

TEST(Threads, OfABlockMeetAtBarriers) {
  const Gpu gpu;
  const auto values = some_words(5000);
  const Array<Word> from(values), result(1);
  for (const unsigned threads : {32U, 128U, 1024U}) {
    gpu.launch("sum_block", {1, threads}, from.address(), 5000U, result.address());
    EXPECT_EQ(result.get()[0], std::accumulate(values.begin(), values.end(), Word{0}));
  }
}

TEST(Threads, UseBarriersOfTheirOwnAndVote) {
  const Gpu gpu;
  const Array<Word> results(129);
  gpu.launch("use_barriers", {1, 128, 512}, results.address());
  for (std::size_t each = 0; each < 128; ++each)
    EXPECT_EQ(results.get(each), (each / 64 * 64 + 63 - each % 64) * 3);
  EXPECT_EQ(results.get(128), 43U * 100 + 10);
}

TEST(Threads, OfAWarpExchangeWhatTheyHave) {
  const Gpu gpu;
  const auto values = some_words(64);
  const Array<Word> from(values), results(64 * 12);
  gpu.launch("use_warp", {1, 64}, from.address(), results.address());
  for (Word thread = 0; thread < 64; ++thread) {
    const Word lane = thread % 32, first = thread - lane;
    const auto value = [&](Word other) { return values[first + other % 32]; };
    const auto found = [&](Word which) { return results.get(thread * 12 + which); };
    Word odd = 0, sum = 0, same = 0;
    int most = -1000;
    bool any = false, all = true;
    for (Word other = 0; other < 32; ++other) {
      odd |= (value(other) & 1) << other;
      sum += value(other);
      most = std::max(most, static_cast<int>(value(other)) - 50);
      same |= Word{value(other) % 4 == value(lane) % 4} << other;
      any = any || value(other) == 13;
      all = all && value(other) < 4000;
    }
    SCOPED_TRACE(thread);
    EXPECT_EQ(found(0), value(lane * 3 + 1));
    EXPECT_EQ(found(1), value(lane < 5 ? lane : lane - 5));
    EXPECT_EQ(found(2), value(lane % 8 < 5 ? lane + 3 : lane));
    EXPECT_EQ(found(3), value(lane ^ 6));
    EXPECT_EQ(found(4), odd);
    EXPECT_EQ(found(5), Word{any} + 2 * Word{all});
    EXPECT_EQ(found(6), sum);
    EXPECT_EQ(found(7), static_cast<Word>(most));
    EXPECT_EQ(found(8), same);
    EXPECT_EQ(found(9), lane % 2 == 1 ? value(lane ^ 2) : 0);
    EXPECT_EQ(found(10), value(lane ^ 1) + (lane ^ 1));
    EXPECT_GE(found(11), 1U);
  }
}

TEST(Threads, ChangeMemoryAtomically) {
  const Gpu gpu;
  const Array<Word> words({0, 0, 127, 0, 0, 0, 1, 0});
  const Array<Wide> wides({0, 0, 1000, 0});
  const Array<float> real(1, 0.F);
  const Array<double> wide_real(1, 0.);
  const Array<int> number(1, 5);
  gpu.launch("use_atomics", {4, 96}, words.address(), wides.address(), real.address(),
             wide_real.address(), number.address());
  Word chain = 1;
  for (int each = 0; each < 4 * 96; ++each) chain = chain * 5 + 1;
  // The count goes from 4 down to 0 and begins anew; the first of 384 threads finds 0.
  EXPECT_EQ(words.get(),
            (std::vector<Word>{4 * 96 * 97 / 2, 0xffffffff, 0, 0, 384 % 10, 1, chain, 42}));
  EXPECT_EQ(wides.get(), (std::vector<Wide>{Wide{95} << 40, 768, 616, 1}));
  EXPECT_EQ(real.get(0), 192.F);
  EXPECT_EQ(wide_real.get(0), 96.);
  EXPECT_EQ(number.get(0), -95);
}

TEST(Threads, KnowWhereTheyAre) {
  const Gpu gpu;
  const Array<Word> results(24 * 24);
  CUdeviceptr address = results.address();
  void* arguments[] = {&address};
  check(cuLaunchKernel(gpu.kernel("identify"), 2, 3, 4, 4, 3, 2, 0, nullptr, arguments, nullptr));
  for (Word each = 0; each < 24 * 24; ++each) {
    const Word thread = each % 24;
    EXPECT_EQ(results.get(each),
              each / 24 << 16 | thread / 12 << 12 | thread / 4 % 3 << 8 | thread % 4);
  }
}

/// Two ranks that exchange words by flags, on a stream each.
struct Exchange {
  static constexpr Word kBlocks = 4, kWords = 100, kRounds = 20;
  Array<Wide> memory{2 * kBlocks * kWords, 0}, flags{4 * kBlocks, 0}, sums{2, 0};

  void launch(const Gpu& gpu, const char* kernel, const Stream& one, const Stream& other) const {
    for (Word rank = 0; rank < 2; ++rank) {
      const auto part = [&](const Array<Wide>& of, Word words, Word owner) {
        return of.address(owner * kBlocks * words);
      };
      gpu.launch(kernel, {kBlocks, 64, 0, (rank == 0 ? one : other).handle()},
                 part(memory, kWords, rank), part(memory, kWords, 1 - rank), part(flags, 2, rank),
                 part(flags, 2, 1 - rank), kWords, kRounds, sums.address(rank));
    }
  }
  static Wide expected() {
    return Wide{kBlocks} * (Wide{kRounds} * (kRounds + 1) / 2 * 1000 * kWords +
                            Wide{kRounds} * (kWords * (kWords - 1) / 2));
  }
};

TEST(Blocks, OfTwoStreamsExchangeWordsByFlags) {
  const Gpu gpu;
  const Stream one, other;
  const Exchange exchange;
  exchange.launch(gpu, "exchange_words", one, other);
  one.synchronize();
  other.synchronize();
  EXPECT_EQ(exchange.sums.get(), (std::vector<Wide>{Exchange::expected(), Exchange::expected()}));
}

TEST(Blocks, OfAGridWaitForEachOther) {
  const Gpu gpu;
  const Array<Wide> count(1, 0);
  const Array<Word> most(1, 0);
  gpu.launch("meet_all_blocks", {16, 64}, count.address(), most.address());
  EXPECT_EQ(most.get()[0], 16U);
}

// The settings are read once, so that a test with its own runs in a process of its own.
class Settings : public testing::Test {
 protected:
  Settings() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
};
using BlocksWithSettings = Settings;
using KernelsWithFaults = Settings;

[[noreturn]] void end(bool good) { std::_Exit(good && !testing::Test::HasFailure() ? 0 : 1); }

TEST_F(BlocksWithSettings, NoMoreRunAtOnceThanThereIsRoomFor) {
  const auto run = [&] {
    set("FAKE_CUDA_SMS", "3");
    const Gpu gpu;
    const Stream one, other;
    const Array<Word> now(1, 0), most(1, 0);
    const Array<Wide> all(1, 0);
    for (const CUstream stream : {one.handle(), other.handle()})
      gpu.launch("count_residents", {20, 32, 0, stream}, now.address(), most.address(),
                 all.address());
    check(cuCtxSynchronize());
    end(all.get()[0] == 40 && most.get()[0] <= 3 && most.get()[0] >= 2);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(BlocksWithSettings, ThatWaitForOnesWithoutRoomRunIntoTheTimeOut) {
  const auto run = [&] {
    set("FAKE_CUDA_SMS", "4");
    set("FAKE_CUDA_TIMEOUT_MS", "300");
    const Gpu gpu;
    const Array<Wide> count(1, 0);
    const Array<Word> most(1, 0);
    gpu.launch("meet_all_blocks", {5, 32}, count.address(), most.address());
    check(cuCtxSynchronize());
    end(true);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(86), "kernel meet_all_blocks: .* 0 of 5 blocks");
}

TEST_F(BlocksWithSettings, RunInAnyOrderWithJitter) {
  for (const char* const seed : {"1", "2", "3"}) {
    const auto run = [&] {
      set("FAKE_CUDA_JITTER", seed);
      const Gpu gpu;
      const Stream one, other;
      const Exchange exchange;
      exchange.launch(gpu, "exchange_words", one, other);
      check(cuCtxSynchronize());
      const auto values = some_words(5000);
      const Array<Word> from(values), result(1);
      gpu.launch("sum_block", {1, 256}, from.address(), 5000U, result.address());
      end(exchange.sums.get() == std::vector<Wide>{Exchange::expected(), Exchange::expected()} &&
          result.get()[0] == std::accumulate(values.begin(), values.end(), Word{0}));
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
  }
}

TEST_F(KernelsWithFaults, ThatWaitForeverRunIntoTheTimeOut) {
  const auto run = [&] {
    set("FAKE_CUDA_TIMEOUT_MS", "200");
    const Gpu gpu;
    const Array<Wide> word(1, 0);
    gpu.launch("wait_forever", {2, 64}, word.address());
    check(cuCtxSynchronize());
    end(true);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(86), "kernel wait_forever: .* 0 of 2 blocks");
}

TEST_F(KernelsWithFaults, ThatLeaveOthersAtABarrierAreNamed) {
  const auto run = [&] {
    const Gpu gpu;
    gpu.launch("leave_others_at_barrier", {1, 64});
    check(cuCtxSynchronize());
    end(true);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(86),
              "leave_others_at_barrier, block 0: 32 of 64 threads wait");
}

TEST_F(KernelsWithFaults, ThatTouchMisalignedAddressesAreNamed) {
  const auto run = [&] {
    const Gpu gpu;
    const Array<Word> words(4, 0);
    gpu.launch("touch_misaligned", {1, 1}, words.address());
    check(cuCtxSynchronize());
    end(true);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(86),
              "touch_misaligned, block 0, thread 0: a misaligned address");
}

}  // namespace
}  // namespace tutti::stand_in::test
