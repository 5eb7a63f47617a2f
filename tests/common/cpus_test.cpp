#include "common/cpus.h"

#include <gtest/gtest.h>

#include <thread>

namespace tutti {
namespace {

TEST(Cpus, AreWrittenAsTheKernelWritesThemAndReadBack) {
  EXPECT_EQ(to_text(Cpus{}), "");
  EXPECT_EQ(to_text(Cpus{3}), "3");
  EXPECT_EQ(to_text(Cpus{0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  for (const Cpus& cpus : {Cpus{}, Cpus{0}, Cpus{0, 2, 4}, Cpus{1, 2, 3, 70, 65535}})
    EXPECT_EQ(parse_cpus(to_text(cpus)), cpus);
}

TEST(Cpus, AreReadInAnyOrderWithBlanksAndOverlaps) {
  EXPECT_EQ(parse_cpus(" 8, 0-2 ,1-3"), (Cpus{0, 1, 2, 3, 8}));
}

TEST(Cpus, OfTextThatIsNoListAreNone) {
  for (const char* text :
       {",", "1,", "a", "1-", "-1", "3-1", "1--2", "0x1", "65536", "0-65536", "1 2"})
    EXPECT_FALSE(parse_cpus(text)) << text;
}

TEST(Cpus, OfRanksHaveCommasBetweenRanksAndPlusWithinOne) {
  EXPECT_EQ(parse_cpus_of_ranks("0,1"), (std::vector<Cpus>{{0}, {1}}));
  EXPECT_EQ(parse_cpus_of_ranks("0-1+8,2"), (std::vector<Cpus>{{0, 1, 8}, {2}}));
  for (const char* text : {"", "0,", "0++1", "auto", "0;1"})
    EXPECT_FALSE(parse_cpus_of_ranks(text)) << text;
}

TEST(Cpus, OfSetsUniteIntersectAndContain) {
  EXPECT_EQ(unite({0, 2}, {1, 2}), (Cpus{0, 1, 2}));
  EXPECT_EQ(intersect({0, 2}, {1, 2}), Cpus{2});
  EXPECT_TRUE(contains({0, 1, 2}, {0, 2}));
  EXPECT_TRUE(contains({0}, {}));
  EXPECT_FALSE(contains({0, 2}, {1}));
}

TEST(BindThread, KeepsTheThreadAndItsChildrenAndNobodyElse) {
  const Cpus before = affinity();
  ASSERT_FALSE(before.empty());
  const Cpus one{before.back()};
  Cpus mine, childs;
  std::thread([&] {
    ASSERT_TRUE(bind_thread(one));
    mine = affinity();
    std::thread([&] { childs = affinity(); }).join();
  }).join();
  EXPECT_EQ(mine, one);
  EXPECT_EQ(childs, one);
  EXPECT_EQ(affinity(), before);
}

TEST(BindThread, SaysThatTheKernelRefuses) {
  EXPECT_FALSE(bind_thread({kMaxCpus - 1}));
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace tutti
