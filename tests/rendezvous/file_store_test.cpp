#include "rendezvous/store/file_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "common/log.h"
#include "rendezvous/store/open_store.h"
#include "test_job.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class AFileStore : public testing::Test {
 protected:
  ~AFileStore() override { unlink(path_.c_str()); }
  bool exists() const { return access(path_.c_str(), F_OK) == 0; }

  const std::string path_ = testing::TempDir() + fmt::format("tutti-file-store-{}", getpid());
};

TEST_F(AFileStore, BringsProcessesTogetherAgainAndAgainAndLeavesNoFile) {
  constexpr int kRanks = 4, kTimes = 3;
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = kRanks; rank-- > 0;)
    ranks.push_back(std::make_unique<Child>([rank, this] {
      Log log(LogLevel::error, {});
      LaunchEnvironment launch;
      launch.rank = rank;
      launch.size = kRanks;
      launch.file = path_;
      for (int time = 0; time < kTimes; ++time) {
        const auto store = open_store(launch, Config{}, in_time(), log).store;
        if (store->add("came", 1, in_time()) > kRanks) _exit(3);  // the file is a previous one
        store->set(fmt::format("rank {}", rank), std::to_string(time), in_time());
        for (int peer = 0; peer < kRanks; ++peer)
          if (store->get(fmt::format("rank {}", peer), in_time()) != std::to_string(time)) _exit(2);
      }
    }));
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(), 0);
  EXPECT_FALSE(exists());
}

TEST_F(AFileStore, OfAJobThatWasKilledIsNamedAndNotTakenForThisOne) {
  Child killed([this] {
    const FileStore store(path_, 0, 2, in_time());
    kill(getpid(), SIGKILL);
  });
  killed.wait();
  const Error error = error_of([&] { FileStore(path_, 0, 2, in(milliseconds(50))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr(path_), HasSubstr("remove")));
}

TEST_F(AFileStore, GoesOnBehindARecordThatWasLeftHalfWritten) {
  FileStore first(path_, 0, 2, in_time());
  first.set("key", "value", in_time());
  std::ofstream(path_, std::ios::binary | std::ios::app)
      << std::string("\x03\0\0\0\xff\0\0\0ke", 10);
  FileStore second(path_, 1, 2, in_time());
  second.set("next", "whole", in_time());
  EXPECT_EQ(first.get("next", in_time()), "whole");
  EXPECT_EQ(second.get("key", in_time()), "value");
}

// Ranks that wait read numbers by adding 0, again and again.
TEST_F(AFileStore, DoesNotGrowByWhatIsOnlyRead) {
  FileStore store(path_, 0, 1, in_time());
  FileStore other(path_, in_time());
  const auto empty = std::filesystem::file_size(path_);
  EXPECT_EQ(store.add("number", 0, in_time()), 0);
  EXPECT_EQ(std::filesystem::file_size(path_), empty);
  EXPECT_EQ(store.add("number", 3, in_time()), 3);
  const auto size = std::filesystem::file_size(path_);
  for (int time = 0; time < 100; ++time) {
    EXPECT_EQ(store.add("number", 0, in_time()), 3);
    EXPECT_EQ(other.add("number", 0, in_time()), 3);
  }
  EXPECT_EQ(std::filesystem::file_size(path_), size);
}

// What a request that failed would have written does not count later.
TEST_F(AFileStore, ForgetsWhatCouldNotBeWritten) {
  Child full([this] {
    signal(SIGXFSZ, SIG_IGN);
    FileStore store(path_, 0, 2, in_time());
    FileStore other(path_, in_time());
    if (store.add("number", 3, in_time()) != 3) _exit(1);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit none{std::filesystem::file_size(path_), limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    if (error_of([&] { store.add("number", 1, in_time()); }).kind() != ErrorKind::unavailable)
      _exit(2);
    setrlimit(RLIMIT_FSIZE, &limit);
    if (store.add("number", 0, in_time()) != 3 || other.add("number", 1, in_time()) != 4) _exit(3);
    _exit(store.add("number", 1, in_time()) == 5 ? 0 : 4);
  });
  EXPECT_EQ(full.wait(), 0);
}

// A limit on the sizes of files stands for a full disk: a part of the record still fits.
TEST_F(AFileStore, WhichIsFullSaysSoAndStaysReadable) {
  Child writer([this] {
    FileStore store(path_, 0, 2, in_time());
    store.set("key", "value", in_time());
    struct stat info {};
    if (stat(path_.c_str(), &info) != 0) _exit(3);
    signal(SIGXFSZ, SIG_IGN);
    const auto size = static_cast<rlim_t>(info.st_size);
    const rlimit limit{size + 16, size + 16};
    setrlimit(RLIMIT_FSIZE, &limit);
    errno = 0;
    const Error error = error_of([&] { store.set("next", std::string(100, 'x'), in_time()); });
    if (error.kind() != ErrorKind::unavailable) _exit(4);
    if (std::string(error.what()).find(std::strerror(EFBIG)) == std::string::npos) _exit(5);
    if (store.get("key", in_time()) != "value") _exit(6);
  });
  EXPECT_EQ(writer.wait(), 0);
}

TEST_F(AFileStore, RefusesAFileThatOthersCanReadAndOneThatIsNoStore) {
  std::ofstream(path_) << "what is this, and why is it so long?";
  chmod(path_.c_str(), 0644);
  EXPECT_THAT(error_of([&] { FileStore(path_, 0, 2, in_time()); }).what(), HasSubstr("chmod 600"));
  chmod(path_.c_str(), 0600);
  EXPECT_EQ(error_of([&] { FileStore(path_, 0, 2, in_time()); }).kind(), ErrorKind::corrupt);
  const std::string other = path_ + "-2";
  ASSERT_EQ(link(path_.c_str(), other.c_str()), 0);
  EXPECT_THAT(error_of([&] { FileStore(path_, 0, 2, in_time()); }).what(), HasSubstr("hard link"));
  unlink(other.c_str());
  const Error error = error_of([&] { FileStore("/no/such/folder/file", 0, 2, in_time()); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_THAT(error.what(), HasSubstr("No such file"));
}

}  // namespace
}  // namespace tutti
