#include "common/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "common/random.h"

namespace tutti {
namespace {

// The test vectors of RFC 3720, B.4.
TEST(Crc32c, IsThatOfTheStandard) {
  const std::vector<unsigned char> zeros(32, 0), ones(32, 0xff);
  std::vector<unsigned char> rising(32);
  for (std::size_t i = 0; i < 32; ++i) rising[i] = static_cast<unsigned char>(i);
  constexpr std::string_view kDigits = "123456789";
  for (const auto crc : {crc32c, crc32c_by_tables}) {
    EXPECT_EQ(crc(zeros.data(), 32), 0x8a9136aau);
    EXPECT_EQ(crc(ones.data(), 32), 0x62a8ab43u);
    EXPECT_EQ(crc(rising.data(), 32), 0x46dd794eu);
    EXPECT_EQ(crc(kDigits.data(), 9), 0xe3069283u);
    EXPECT_EQ(crc(nullptr, 0), 0u);
  }
}

TEST(Crc32c, IsTheSameByTheInstructionAndByTablesAtAnyLengthAndPlace) {
  SeededRandom random(5);
  std::vector<unsigned char> bytes(60'000);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random.next());
  for (const std::size_t length :
       {1u, 7u, 8u, 767u, 768u, 769u, 1'600u, 12'287u, 12'288u, 12'289u, 24'576u, 40'001u, 59'000u})
    for (const std::size_t at : {0u, 1u, 13u, 64u})
      EXPECT_EQ(crc32c(bytes.data() + at, length), crc32c_by_tables(bytes.data() + at, length))
          << length << " at " << at;
}

TEST(Crc32c, IsAnotherForEveryBitThatIsChanged) {
  std::vector<unsigned char> bytes(13'000, 0x5a);
  const std::uint32_t before = crc32c(bytes.data(), bytes.size());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 7) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    EXPECT_NE(crc32c(bytes.data(), bytes.size()), before);
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
  }
}

}  // namespace
}  // namespace tutti
