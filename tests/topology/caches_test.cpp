#include "topology/caches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "machines.h"

namespace tutti {
namespace {

constexpr std::size_t operator""_KiB(unsigned long long n) { return n << 10; }

void write_cache(Tree& tree, const std::string& index, const std::string& level,
                 const std::string& size, const std::string& shared) {
  const std::string folder = "sys/devices/system/cpu/cpu0/cache/" + index + "/";
  tree.write(folder + "level", level).write(folder + "size", size);
  tree.write(folder + "shared_cpu_list", shared);
}

TEST(RingBytes, Are192KiBOfTwoMiBWhichIsWhatWasMeasured) {
  EXPECT_EQ(ring_bytes_of(2048_KiB, 1), 192_KiB);
  EXPECT_EQ(ring_bytes_of(0, 1), 192_KiB);  // A size of 0 stands for an unknown one.
}

TEST(RingBytes, AreSharedByTheRanksOfACoreAndFollowTheCacheWithinTheMeasuredRange) {
  EXPECT_EQ(ring_bytes_of(2048_KiB, 2), 96_KiB);
  EXPECT_EQ(ring_bytes_of(2048_KiB, 64), 96_KiB);
  EXPECT_EQ(ring_bytes_of(4096_KiB, 1), 384_KiB);
  EXPECT_EQ(ring_bytes_of(1280_KiB, 1), 120_KiB);
  EXPECT_EQ(ring_bytes_of(256_KiB, 1), 96_KiB);
  EXPECT_EQ(ring_bytes_of(65536_KiB, 1), 768_KiB);
  EXPECT_EQ(ring_bytes_of(std::numeric_limits<std::size_t>::max(), 1), 768_KiB);
}

TEST(RingBytes, AreWholePagesForEveryCacheSoThatPayloadsCanBe) {
  for (std::size_t cache = 0; cache < 16384_KiB; cache += 64_KiB)
    for (std::size_t ranks = 1; ranks <= 8; ++ranks)
      EXPECT_EQ(ring_bytes_of(cache, ranks) % 4096, 0u) << cache << " " << ranks;
}

TEST(RingBytes, AreOneAndAHalfSecondLevelCachesWhereTheThirdLevelIsFasterToReadFrom) {
  const CoreCaches two{1024_KiB, 2, 4096_KiB};
  EXPECT_EQ(ring_bytes_of(two, 1), 1536_KiB);
  EXPECT_EQ(ring_bytes_of(two, 2), 1536_KiB);
  EXPECT_EQ(ring_bytes_of(two, 4), 384_KiB);  // divided by the square of the ranks on a core
  EXPECT_EQ(ring_bytes_of(two, 8), 96_KiB);   // and never less than elsewhere
  EXPECT_EQ(ring_bytes_of(two, 4096), 96_KiB);
  EXPECT_EQ(ring_bytes_of(CoreCaches{512_KiB, 2, 4096_KiB}, 2), 768_KiB);
}

TEST(RingBytes, OfAllPeersFitInACoresShareOfTheThirdLevel) {
  const CoreCaches many{1024_KiB, 64, 4096_KiB};
  EXPECT_EQ(ring_bytes_of(many, 5), 1024_KiB);
  EXPECT_EQ(ring_bytes_of(many, 9), 512_KiB);
  EXPECT_EQ(ring_bytes_of(many, 64), 96_KiB);
  EXPECT_EQ(ring_bytes_of(CoreCaches{1024_KiB, 64, 0}, 5), 96_KiB);
}

TEST(ThirdLevel, IsDividedByItsCoresAndBoundedWhereAVirtualMachineShowsItWhole) {
  Tree tree;
  EXPECT_EQ(third_level_bytes(tree.root()), 0u);
  write_cache(tree, "index3", "3", "16384K", "0-15");
  EXPECT_EQ(third_level_bytes(tree.root()), 1024_KiB);
  write_cache(tree, "index3", "3", "32768K", "0-1");
  EXPECT_EQ(third_level_bytes(tree.root()), 4096_KiB);
  write_cache(tree, "index3", "3", "many", "0-1");
  EXPECT_EQ(third_level_bytes(tree.root()), 0u);
}

TEST(CoreCache, IsTheSecondLevelThatTheKernelTellsOf) {
  Tree tree;
  write_cache(tree, "index0", "1", "48K", "0");
  write_cache(tree, "index1", "1", "32K", "0");
  write_cache(tree, "index2", "2", "1280K", "0,8");
  write_cache(tree, "index3", "3", "36864K", "0-15");
  tree.write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,8");
  EXPECT_EQ(core_cache_bytes(tree.root()), 1280_KiB);  // two threads of one core share all of it
}

TEST(CoreCache, SharedByAClusterIsACoresPart) {
  Tree tree;
  write_cache(tree, "index0", "1", "32K", "0");
  write_cache(tree, "index1", "2", "2048K", "0-3");
  tree.write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0");
  EXPECT_EQ(core_cache_bytes(tree.root()), 512_KiB);
}

TEST(CoreCache, OfThisMachineIsWhatHwlocSaysOfItsFirstCpu) {
  const Machine machine = discover();
  if (machine.source != "hwloc") GTEST_SKIP() << "hwloc cannot tell here";
  for (const Node& node : machine.nodes)
    if (node.kind == NodeKind::cache && node.level == 2 && contains(node.cpus, {0})) {
      const auto cores = cores_within(machine, node.cpus).size();
      EXPECT_EQ(core_cache_bytes(), node.bytes / cores);
    }
}

}  // namespace
}  // namespace tutti
