#include <numeric>

#include "fixture.h"

namespace tutti {
namespace {

class CombineCopy : public OnEveryTarget {
 protected:
  // Copies `count` bytes into `outputs` buffers, each of which begins `apart` bytes further into a
  // cache line than the one before.
  void check_copy(std::size_t count, int outputs, std::uint64_t streamed, std::size_t apart) {
    std::vector<std::uint8_t> bytes(count);
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{3});
    GuardedBuffer<std::uint8_t> source(bytes, 5);
    std::vector<GuardedBuffer<std::uint8_t>> targets;
    std::vector<void*> out;
    for (int k = 0; k < outputs; ++k)
      targets.emplace_back(std::vector<std::uint8_t>(count),
                           apart * static_cast<std::size_t>(k) % 64);
    for (auto& target : targets) out.push_back(target.data());
    const void* in = source.data();
    combine_copy({.in = &in,
                  .inputs = 1,
                  .out = out.data(),
                  .outputs = outputs,
                  .count = count,
                  .stream_outputs = streamed});
    for (const auto& target : targets) {
      EXPECT_TRUE(target.values() == bytes && target.guards_are_untouched())
          << count << " bytes to " << outputs << " outputs, streamed " << streamed << ", apart "
          << apart;
    }
    EXPECT_TRUE(source.values() == bytes);
  }
};

TEST_P(CombineCopy, EveryLengthArrivesInEveryOutput) {
  for (std::size_t count = 0; count < 300; ++count)
    for (const int outputs : {1, 2, 5}) check_copy(count, outputs, 0, 9);
  for (const std::size_t count : {1023, 1024, 1025, 4096, 70001}) check_copy(count, 3, 0, 1);
}

TEST_P(CombineCopy, StreamedOutputsMayBeMixedWithPlainOnes) {
  for (const std::size_t count : {10, 1100, 70001})
    for (const std::size_t apart : {0, 1, 16})
      for (std::uint64_t streamed = 1; streamed < 8; ++streamed)
        check_copy(count, 3, streamed, apart);
}

TEST_P(CombineCopy, MoreThanSixtyFourOutputsAreServed) {
  check_copy(3000, 70, ~std::uint64_t{0}, 0);
}

TEST_P(CombineCopy, AnOutputThatIsTheInputIsLeftAlone) {
  std::vector<std::uint8_t> first(5000, 1), second(5000, 2), third(5000, 3);
  const void* in = second.data();
  void* out[] = {first.data(), second.data(), third.data()};
  combine_copy(
      {.in = &in, .inputs = 1, .out = out, .outputs = 3, .count = 5000, .stream_outputs = 6});
  EXPECT_EQ(first, second);
  EXPECT_EQ(third, second);
  EXPECT_EQ(second, std::vector<std::uint8_t>(5000, 2));
}

// An output that is the input must not even be written with its own bytes, so read-only memory will
// do.
TEST_P(CombineCopy, InPlaceNeedsNoPermissionToWrite) {
  static constexpr char kText[] = "constant data lies in read-only memory";
  const void* in = kText;
  void* out = const_cast<char*>(kText);
  combine_copy({.in = &in, .inputs = 1, .out = &out, .outputs = 1, .count = sizeof kText});
}

INSTANTIATE_ON_EVERY_TARGET(CombineCopy);

}  // namespace
}  // namespace tutti
