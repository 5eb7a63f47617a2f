#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include <tutti/error.hpp>
#include <tutti/types.hpp>

#include "common/random.h"
#include "common/wire.h"

namespace tutti {
namespace {

template <typename E>
void expect_names_of_their_own(int count) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) {
    const std::string_view name = to_string(static_cast<E>(i));
    EXPECT_NE(name, "unknown");
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(to_string(static_cast<E>(count)), "unknown");
}

TEST(Types, HaveNamesOfTheirOwnAndNoneBeyondTheLast) {
  expect_names_of_their_own<DataType>(kDataTypes);
  expect_names_of_their_own<Op>(kOps);
  expect_names_of_their_own<Collective>(kCollectives);
}

TEST(Types, HaveTheSizesOfTheirElements) {
  EXPECT_EQ(size_of(data_type_of<bool>()), 1u);
  EXPECT_EQ(size_of(data_type_of<bfloat16>()), 2u);
  EXPECT_EQ(size_of(data_type_of<const float>()), 4u);
  EXPECT_EQ(size_of(data_type_of<long>()), 8u);
  EXPECT_EQ(size_of(data_type_of<std::complex<double>>()), 16u);
  EXPECT_EQ(size_of(DataType::f8e4m3), 1u);
  EXPECT_EQ(size_of(static_cast<DataType>(99)), 0u);
}

TEST(ErrorKinds, AreNamedAsInTheHeader) {
  EXPECT_EQ(to_string(ErrorKind::peer_lost), "peer_lost");
  EXPECT_EQ(to_string(ErrorKind::usage), "usage");
  EXPECT_EQ(to_string(static_cast<ErrorKind>(0)), "unknown");
}

TEST(Fingerprint, DiffersWhereAnyFieldDiffers) {
  const CallSignature base{Collective::all_reduce, DataType::f32, Op::sum, 0, 1000, 1};
  std::set<std::uint32_t> seen{fingerprint(base)};
  CallSignature other = base;
  other.what = Collective::reduce;
  EXPECT_TRUE(seen.insert(fingerprint(other)).second);
  other = base;
  other.type = DataType::f64;
  EXPECT_TRUE(seen.insert(fingerprint(other)).second);
  other = base;
  other.op = Op::max;
  EXPECT_TRUE(seen.insert(fingerprint(other)).second);
  other = base;
  other.root = 1;
  EXPECT_TRUE(seen.insert(fingerprint(other)).second);
  other = base;
  other.count = 1001;
  EXPECT_TRUE(seen.insert(fingerprint(other)).second);
  other = base;
  other.algorithm = 2;
  EXPECT_TRUE(seen.insert(fingerprint(other)).second);
  EXPECT_EQ(fingerprint(base), fingerprint(CallSignature(base)));
}

TEST(Random, GivesTheSameSequenceForTheSameSeedAndAnotherForAnother) {
  SeededRandom one(7), same(7), other(8);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t value = one.next();
    EXPECT_EQ(value, same.next());
    EXPECT_NE(value, other.next());
  }
}

TEST(Random, OfTheKernelDoesNotRepeatItself) {
  SystemRandom random;
  EXPECT_NE(random.next(), random.next());
}

}  // namespace
}  // namespace tutti
