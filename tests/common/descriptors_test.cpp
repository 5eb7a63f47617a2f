#include "common/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <tutti/error.hpp>

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Restores this process's limits after each test.
class Descriptors : public testing::Test {
 protected:
  Descriptors() { getrlimit(RLIMIT_NOFILE, &before_); }
  ~Descriptors() override { setrlimit(RLIMIT_NOFILE, &before_); }

  void limit(rlim_t soft) const {
    const rlimit files{soft, before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  }
  static rlim_t soft() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_cur;
  }

  rlimit before_{};
};

TEST_F(Descriptors, AreAllowedUpToTheHardLimitWhereTheSoftOneIsTooLow) {
  limit(64);
  EXPECT_GT(allow_descriptors(65), 64u);
  EXPECT_GE(soft(), std::min<rlim_t>(before_.rlim_max, 1 << 20));
}

TEST_F(Descriptors, AreLeftAsTheyAreWhereTheyAreEnough) {
  limit(64);
  EXPECT_EQ(allow_descriptors(64), 64u);
  EXPECT_EQ(soft(), 64u);
}

TEST_F(Descriptors, BeyondTheHardLimitAreAnErrorThatSaysTooManyOpenFiles) {
  const std::size_t beyond = before_.rlim_max == RLIM_INFINITY ? 0 : before_.rlim_max + 1;
  if (beyond == 0) GTEST_SKIP() << "there is no hard limit of open files here";
  try {
    need_descriptors(beyond, beyond, "rank 3 of 600", "to join");
    FAIL() << "more than the hard limit were allowed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 3 of 600"), HasSubstr("too many open files"),
                                    HasSubstr("ulimit -Hn")));
  }
}

}  // namespace
}  // namespace tutti
