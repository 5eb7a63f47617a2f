#include "topology/cgroup.h"

#include <gtest/gtest.h>

#include "machines.h"

namespace tutti {
namespace {

constexpr std::string_view kVersion2 =
    "25 1 0:22 / /proc rw - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

/// Returns the limits that are read from a tree of these files, given by path and text.
CgroupLimits limits_with(std::initializer_list<std::pair<const char*, std::string_view>> files) {
  Tree tree;
  for (const auto& [path, text] : files) tree.write(path, text);
  return read_cgroup_limits(tree.root());
}

TEST(CgroupLimits, OfVersionTwoAreTheTightestOnTheWayUp) {
  const CgroupLimits limits = limits_with({
      {"proc/self/cgroup", "0::/job/step"},
      {"proc/self/mountinfo", kVersion2},
      {"sys/fs/cgroup/cpuset.cpus.effective", "0-15"},
      {"sys/fs/cgroup/job/cpu.max", "250000 100000"},
      {"sys/fs/cgroup/job/memory.max", "8589934592"},
      {"sys/fs/cgroup/job/cpuset.cpus.effective", "0-7"},
      {"sys/fs/cgroup/job/step/cpu.max", "max 100000"},
      {"sys/fs/cgroup/job/step/memory.max", "max"},
      {"sys/fs/cgroup/job/step/cpuset.cpus.effective", "2-3,6"},
  });
  EXPECT_EQ(limits.cpu_quota, 2.5);
  EXPECT_EQ(limits.memory_bytes, std::size_t{8} << 30);
  EXPECT_EQ(limits.cpus, (Cpus{2, 3, 6}));
}

TEST(CgroupLimits, OfVersionOneAreFoundUnderEachController) {
  const CgroupLimits limits = limits_with({
      {"proc/self/cgroup",
       "5:cpuset:/docker/abc\n4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x"},
      {"proc/self/mountinfo",
       "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
       "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
       "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"},
      {"sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "150000"},
      {"sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"},
      {"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "1073741824"},
      {"sys/fs/cgroup/cpuset/docker/abc/cpuset.cpus", "0-3"},
      {"sys/fs/cgroup/cpuset/docker/abc/cpuset.effective_cpus", "1-2"},
  });
  EXPECT_EQ(limits.cpu_quota, 1.5);
  EXPECT_EQ(limits.memory_bytes, 1u << 30);
  EXPECT_EQ(limits.cpus, (Cpus{1, 2}));
}

TEST(CgroupLimits, OfAContainerThatSeesItsOwnGroupAsTheRootAreRead) {
  const CgroupLimits limits = limits_with({
      {"proc/self/cgroup", "3:cpu:/docker/abc\n0::/../elsewhere"},
      {"proc/self/mountinfo",
       "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
       "33 31 0:30 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"},
      {"sys/fs/cgroup/unified/memory.max", "4096"},
  });
  EXPECT_EQ(limits.cpu_quota, 0.5);
  EXPECT_EQ(limits.memory_bytes, 4096u);
  EXPECT_FALSE(limits.cpus);
}

TEST(CgroupLimits, AreNoneWhereNothingIsMountedOrLimited) {
  const CgroupLimits bare = limits_with({});
  EXPECT_FALSE(bare.cpus || bare.cpu_quota || bare.memory_bytes);
  const CgroupLimits free = limits_with({{"proc/self/cgroup", "0::/"},
                                         {"proc/self/mountinfo", kVersion2},
                                         {"sys/fs/cgroup/memory.max", "max"}});
  EXPECT_FALSE(free.cpus || free.cpu_quota || free.memory_bytes);
}

TEST(CgroupLimits, OfDamagedFilesAreNone) {
  const CgroupLimits limits = limits_with({
      {"proc/self/cgroup", "0::/\n:\n\n7:cpu\nnothing"},
      {"proc/self/mountinfo", std::string(kVersion2) + "\n- cgroup2\n1 2 3 4 5 6 - cgroup\n-"},
      {"sys/fs/cgroup/cpu.max", "0 0"},
      {"sys/fs/cgroup/memory.max", "lots"},
      {"sys/fs/cgroup/cpuset.cpus.effective", "3-1,x"},
  });
  EXPECT_FALSE(limits.cpus || limits.cpu_quota || limits.memory_bytes);
}

}  // namespace
}  // namespace tutti
