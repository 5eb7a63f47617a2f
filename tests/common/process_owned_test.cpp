#include "common/process_owned.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <optional>
#include <string>

#include <tutti/error.hpp>

namespace tutti {
namespace {

/// Counts how often an object is destroyed, in the memory of the process that destroys it.
struct Counted {
  explicit Counted(int& destroyed) : destroyed_(destroyed) {}
  ~Counted() { ++destroyed_; }
  int& destroyed_;
};

TEST(ProcessOwned, IsReachedAndDestroyedByTheProcessThatMadeIt) {
  int destroyed = 0;
  {
    const ProcessOwned<Counted> owned("the thing", destroyed);
    EXPECT_EQ(&owned.get().destroyed_, &destroyed);
  }
  EXPECT_EQ(destroyed, 1);
}

TEST(ProcessOwned, IsNeitherReachedNorDestroyedByAForkedChild) {
  int destroyed = 0;
  std::optional<ProcessOwned<Counted>> owned(std::in_place, "the thing", destroyed);
  const pid_t child = fork();
  if (child == 0) {
    int verdict = 1;
    try {
      owned->get();
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.kind() == ErrorKind::usage && text.find("the thing") != std::string::npos)
        verdict = 7;
    }
    owned.reset();
    _exit(verdict + destroyed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace tutti
