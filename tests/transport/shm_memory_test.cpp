#include "transport/shm/memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <tutti/error.hpp>

#include "tests/common/errors.h"
#include "transport/shm/available.h"

namespace tutti::shm {
namespace {

constexpr std::size_t kBytes = 10'000;

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(ShmMemory, IsZeroReservedAndSeenByBothMappings) {
  const Memory memory = make_memory(kBytes, Access::write, "a test");
  const Mapping other = map_received(memory.fd, kBytes, Access::write, "a test");
  auto* mine = static_cast<unsigned char*>(memory.mapping.data());
  auto* theirs = static_cast<unsigned char*>(other.data());
  ASSERT_NE(mine, theirs);
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(mine[i], 0);
  mine[0] = 1;
  theirs[kBytes - 1] = 2;
  EXPECT_EQ(theirs[0], 1);
  EXPECT_EQ(mine[kBytes - 1], 2);
}

TEST(ShmMemory, NobodyCanTruncateItUnderThoseWhoHaveItMapped) {
  const Memory memory = make_memory(kBytes, Access::write, "a test");
  EXPECT_EQ(ftruncate(memory.fd.get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(memory.fd.get(), 1 << 20), -1);
}

TEST(ShmMemory, PeersThatMayOnlyReadCannotMapItForWriting) {
  const Memory memory = make_memory(kBytes, Access::read, "a test");
  message_of(ErrorKind::corrupt, [&] { map_received(memory.fd, kBytes, Access::write, "a test"); });
  const Mapping other = map_received(memory.fd, kBytes, Access::read, "a test");
  static_cast<char*>(memory.mapping.data())[5] = 'x';
  EXPECT_EQ(static_cast<const char*>(other.data())[5], 'x');
}

TEST(ShmMemory, MoreThanTheMachineHasIsAnErrorThatNamesTheBytesAndWhatToDo) {
  const std::string text = message_of(ErrorKind::unavailable, [] {
    make_memory(std::size_t{1} << 40, Access::write, "a ring from rank 1 to rank 2");
  });
  EXPECT_TRUE(has(text, "1099511627776 bytes")) << text;
  EXPECT_TRUE(has(text, "a ring from rank 1 to rank 2")) << text;
  EXPECT_TRUE(has(text, "allocate smaller buffers, lower TUTTI_RING_BYTES")) << text;
}

// Without the check the kernel would send SIGXFSZ.
TEST(ShmMemory, ALimitOnFileSizesIsAnErrorAndNoSignal) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::string text;
    try {
      make_memory(kBytes, Access::write, "a test");
    } catch (const Error& error) {
      text = error.what();
    }
    _exit(has(text, "ulimit -f") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ShmMemory, TooManyOpenFilesIsAnErrorThatSaysSo) {
  const Error error =
      error_without_descriptors([] { make_memory(kBytes, Access::write, "a test"); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_TRUE(has(error.what(), "ulimit -n")) << error.what();
}

TEST(ShmMemory, WhatIsHandedOverIsCheckedBeforeItIsMapped) {
  const auto refused = [](const Fd& fd) {
    return message_of(ErrorKind::corrupt,
                      [&] { map_received(fd, kBytes, Access::read, "a test"); });
  };
  EXPECT_TRUE(has(refused(Fd(eventfd(0, EFD_CLOEXEC))), "no memory"));

  const Fd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fallocate(unsealed.get(), 0, 0, kBytes), 0);
  EXPECT_TRUE(has(refused(unsealed), "not sealed"));

  const Fd hollow(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(hollow.get(), kBytes), 0);
  ASSERT_EQ(fcntl(hollow.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_TRUE(has(refused(hollow), "not reserved"));

  const Memory shorter = make_memory(kBytes - 1, Access::write, "a test");
  EXPECT_TRUE(has(refused(shorter.fd), "it has 9999"));
}

// Tests with a made-up /proc and /sys.
class AvailableMemory : public testing::Test {
 protected:
  AvailableMemory() {
    std::string name = std::filesystem::temp_directory_path() / "tutti-available-XXXXXX";
    root_ = mkdtemp(name.data());
    write("/proc/meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    4000 kB\n");
  }
  ~AvailableMemory() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(AvailableMemory, IsTheMachinesWithoutGroups) {
  EXPECT_EQ(available_memory(root_), 4000u * 1024);
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.max", "max\n");
  write("/sys/fs/cgroup/job/memory.current", "500\n");
  EXPECT_EQ(available_memory(root_), 4000u * 1024);
}

TEST_F(AvailableMemory, IsTheLeastOfAllGroupsAboveTheProcess) {
  write("/proc/self/cgroup", "0::/outer/inner\n");
  write("/sys/fs/cgroup/outer/inner/memory.max", "1000000\n");
  write("/sys/fs/cgroup/outer/inner/memory.current", "100000\n");
  EXPECT_EQ(available_memory(root_), 900'000u);
  write("/sys/fs/cgroup/outer/memory.max", "800000\n");
  write("/sys/fs/cgroup/outer/memory.current", "300000\n");
  EXPECT_EQ(available_memory(root_), 500'000u);
  write("/sys/fs/cgroup/outer/memory.current", "900000\n");
  EXPECT_EQ(available_memory(root_), 0u);
}

TEST_F(AvailableMemory, CountsPageCacheAsFree) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "1000000\n");
  write("/sys/fs/cgroup/memory.current", "900000\n");
  write("/sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 200000\nactive_file 100000\n");
  EXPECT_EQ(available_memory(root_), 400'000u);
}

TEST_F(AvailableMemory, ReadsVersionOneAtThePathOfTheContainerOrAtItsMount) {
  write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/abc\n1:name=systemd:/\n0::/\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "400000\n");
  EXPECT_EQ(available_memory(root_), 600'000u);
  write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 100000\n");
  EXPECT_EQ(available_memory(root_), 700'000u);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available_memory(root_), 4000u * 1024);
}

TEST_F(AvailableMemory, IsNotLookedAtForEachRingOfAStart) {
  constexpr std::size_t kLeft = 4000u * 1024;
  using namespace std::chrono_literals;
  Allowance allowance(root_);
  const TimePoint start{};
  EXPECT_EQ(allowance.refuse(kLeft + 1, start), kLeft);
  EXPECT_EQ(allowance.refuse(1000, start), std::nullopt);
  write("/proc/meminfo", "MemAvailable: 2 kB\n");
  EXPECT_EQ(allowance.refuse(kLeft / 1024 - 1000, start + 99ms), std::nullopt)
      << "a 1024th was granted with the first";
  EXPECT_EQ(allowance.refuse(2049, start + 99ms), 2048u) << "it is used up";
  EXPECT_EQ(allowance.refuse(2000, start + 99ms), std::nullopt);
  EXPECT_EQ(allowance.refuse(1, start + 199ms), std::nullopt);
  write("/proc/meminfo", "MemAvailable: 1 kB\n");
  EXPECT_EQ(allowance.refuse(1025, start + 200ms), 1024u);
}

}  // namespace
}  // namespace tutti::shm
