// ThreadSanitizer sees the threads of kernels, the order that barriers and flags make, and that
// nothing else makes one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tutti::stand_in::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  std::string text;
  int status;
};

Outcome run(const std::string& kernel) {
  const std::string command = "TSAN_OPTIONS='exitcode=66' '" +
                              std::string(std::getenv("TUTTI_TEST_RACES")) + "' " + kernel +
                              " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  Outcome outcome{};
  std::array<char, 4096> piece{};
  while (const std::size_t bytes = std::fread(piece.data(), 1, piece.size(), pipe))
    outcome.text.append(piece.data(), bytes);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

class Races : public testing::TestWithParam<const char*> {};

TEST_P(Races, AreNotSeenInTheRightKernel) {
  const Outcome outcome = run(GetParam());
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("ended"), Not(HasSubstr("data race"))));
}
INSTANTIATE_TEST_SUITE_P(Kernels, Races, testing::Values("sum_block", "exchange_words"));

TEST(RacesOfFaults, MissingBarrierIsSeen) {
  const Outcome outcome = run("sum_block_without_barrier");
  EXPECT_EQ(outcome.status, 66) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("ThreadSanitizer: data race"), HasSubstr("sum_block_without_barrier"),
                    HasSubstr("threads.cu:")));
}

TEST(RacesOfFaults, RelaxedStoreInPlaceOfAReleaseIsSeen) {
  const Outcome outcome = run("exchange_words_unordered");
  EXPECT_EQ(outcome.status, 66) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("ThreadSanitizer: data race"),
                                  HasSubstr("exchange_words_unordered"), HasSubstr("threads.cu:")));
}

}  // namespace
}  // namespace tutti::stand_in::test
