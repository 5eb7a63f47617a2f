#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "ddp/agreement.h"
#include "ddp/digest.h"
#include "ranks.h"

namespace tutti::ddp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::uint64_t digest_of(const std::vector<std::byte>& bytes) { return digest(bytes); }

TEST(Digest, DiffersForEverySingleBitAndForEveryLength) {
  for (std::size_t length = 0; length <= 130; ++length) {
    std::vector<std::byte> bytes(length);
    std::set<std::uint64_t> seen{digest_of(bytes)};
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT_TRUE(seen.insert(digest_of(bytes)).second) << "bit " << bit << " of " << length;
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(seen.contains(digest_of(bytes))) << "a zero after " << length;
  }
}

TEST(Digest, SeesPairsOfFlippedSignsThatAPlainProductWouldCancel) {
  std::vector<float> values(64, 1.0f);
  std::set<std::uint64_t> seen{digest(std::as_bytes(std::span(values)))};
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t k = i + 1; k < values.size(); ++k) {
      values[i] = values[k] = -1.0f;
      EXPECT_TRUE(seen.insert(digest(std::as_bytes(std::span(values)))).second) << i << ", " << k;
      values[i] = values[k] = 1.0f;
    }
}

TEST(Agreement, FindsEveryIndexThatDiffersAndTellsAllRanksTheSame) {
  on_ranks(3, [](Communicator& communicator) {
    const auto rank = static_cast<std::uint64_t>(communicator.rank());
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    const std::vector<std::uint64_t> mine{kMost, rank == 2 ? 6u : 5u, 0, rank == 1 ? kMost : 0,
                                          1ull << 63};
    EXPECT_THAT(differences(communicator, mine, {}), ElementsAre(1, 3));
    EXPECT_THAT(differences(communicator, {}, {}), IsEmpty());
  });
}

TEST(Agreement, TextsOfAllRanksArriveOnAllWhateverTheirLength) {
  on_ranks(4, [](Communicator& communicator) {
    const std::string mine = communicator.rank() == 2 ? "something longer" : "x";
    EXPECT_EQ(by_rank(communicator, mine, {}), "ranks 0, 1, 3: x; rank 2: something longer");
    EXPECT_EQ(by_rank(communicator, "", {}), "ranks 0, 1, 2, 3: ");
  });
}

TEST(Agreement, ManyRanksOfOneTextAreCounted) {
  std::vector<std::string> texts(100, "a");
  texts[7] = std::string("b");
  EXPECT_EQ(by_rank(texts), "ranks 0, 1, 2, 3, 4, 5, 6, 8 and 91 more: a; rank 7: b");
}

}  // namespace
}  // namespace tutti::ddp
