#include "topology/cgroup.h"

#include <gtest/gtest.h>

#include "machines.h"

namespace tutti {
namespace {

constexpr std::string_view kVersion2 =
    "25 1 0:22 / /proc rw - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

TEST(CgroupLimits, OfVersionTwoAreTheTightestOnTheWayUp) {
  Tree tree;
  tree.write("proc/self/cgroup", "0::/job/step");
  tree.write("proc/self/mountinfo", kVersion2);
  tree.write("sys/fs/cgroup/cpuset.cpus.effective", "0-15");
  tree.write("sys/fs/cgroup/job/cpu.max", "250000 100000");
  tree.write("sys/fs/cgroup/job/memory.max", "8589934592");
  tree.write("sys/fs/cgroup/job/cpuset.cpus.effective", "0-7");
  tree.write("sys/fs/cgroup/job/step/cpu.max", "max 100000");
  tree.write("sys/fs/cgroup/job/step/memory.max", "max");
  tree.write("sys/fs/cgroup/job/step/cpuset.cpus.effective", "2-3,6");
  const CgroupLimits limits = read_cgroup_limits(tree.root());
  EXPECT_EQ(limits.cpu_quota, 2.5);
  EXPECT_EQ(limits.memory_bytes, std::size_t{8} << 30);
  EXPECT_EQ(limits.cpus, (Cpus{2, 3, 6}));
}

TEST(CgroupLimits, OfVersionOneAreFoundUnderEachController) {
  Tree tree;
  tree.write(
      "proc/self/cgroup",
      "5:cpuset:/docker/abc\n4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x");
  tree.write("proc/self/mountinfo",
             "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
             "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
             "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset");
  tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  tree.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  tree.write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "150000");
  tree.write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000");
  tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  tree.write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "1073741824");
  tree.write("sys/fs/cgroup/cpuset/docker/abc/cpuset.cpus", "0-3");
  tree.write("sys/fs/cgroup/cpuset/docker/abc/cpuset.effective_cpus", "1-2");
  const CgroupLimits limits = read_cgroup_limits(tree.root());
  EXPECT_EQ(limits.cpu_quota, 1.5);
  EXPECT_EQ(limits.memory_bytes, 1u << 30);
  EXPECT_EQ(limits.cpus, (Cpus{1, 2}));
}

TEST(CgroupLimits, OfAContainerThatSeesItsOwnGroupAsTheRootAreRead) {
  Tree tree;
  tree.write("proc/self/cgroup", "3:cpu:/docker/abc\n0::/../elsewhere");
  tree.write("proc/self/mountinfo",
             "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
             "33 31 0:30 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw");
  tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000");
  tree.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  tree.write("sys/fs/cgroup/unified/memory.max", "4096");
  const CgroupLimits limits = read_cgroup_limits(tree.root());
  EXPECT_EQ(limits.cpu_quota, 0.5);
  EXPECT_EQ(limits.memory_bytes, 4096u);
  EXPECT_FALSE(limits.cpus);
}

TEST(CgroupLimits, AreNoneWhereNothingIsMountedOrLimited) {
  Tree tree;
  const CgroupLimits bare = read_cgroup_limits(tree.root());
  EXPECT_FALSE(bare.cpus || bare.cpu_quota || bare.memory_bytes);
  tree.write("proc/self/cgroup", "0::/").write("proc/self/mountinfo", kVersion2);
  tree.write("sys/fs/cgroup/memory.max", "max");
  const CgroupLimits free = read_cgroup_limits(tree.root());
  EXPECT_FALSE(free.cpus || free.cpu_quota || free.memory_bytes);
}

TEST(CgroupLimits, OfDamagedFilesAreNone) {
  Tree tree;
  tree.write("proc/self/cgroup", "0::/\n:\n\n7:cpu\nnothing");
  tree.write("proc/self/mountinfo",
             std::string(kVersion2) + "\n- cgroup2\n1 2 3 4 5 6 - cgroup\n-");
  tree.write("sys/fs/cgroup/cpu.max", "0 0").write("sys/fs/cgroup/memory.max", "lots");
  tree.write("sys/fs/cgroup/cpuset.cpus.effective", "3-1,x");
  const CgroupLimits limits = read_cgroup_limits(tree.root());
  EXPECT_FALSE(limits.cpus || limits.cpu_quota || limits.memory_bytes);
}

}  // namespace
}  // namespace tutti
