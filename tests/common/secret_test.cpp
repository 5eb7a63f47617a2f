#include "common/secret.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <tutti/error.hpp>

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A secret file that is removed at the end of its scope.
class SecretFile {
 public:
  explicit SecretFile(const std::string& text, mode_t mode = 0600)
      : path_(std::filesystem::temp_directory_path() / fmt::format("tutti-secret-{}", getpid())) {
    std::ofstream(path_, std::ios::binary) << text;
    chmod(path_.c_str(), mode);
  }
  ~SecretFile() { std::filesystem::remove(path_); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  Config config() const {
    Config config;
    config.secret_file = path_.string();
    return config;
  }

 private:
  const std::filesystem::path path_;
};

std::string error_for(const Config& config) {
  try {
    configured_secret(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

TEST(Secret, IsNoneWhereNoneIsConfigured) { EXPECT_FALSE(configured_secret(Config{})); }

TEST(Secret, IsReadFromItsFileLessTheNewline) {
  const SecretFile file("0123456789 abcdef\n");
  EXPECT_EQ(configured_secret(file.config()).bytes(), "0123456789 abcdef");
}

TEST(Secret, OfTheEnvironmentCountsBeforeThatOfAFile) {
  const SecretFile file("0123456789abcdef");
  Config config = file.config();
  config.secret = "fedcba9876543210";
  EXPECT_EQ(configured_secret(config).bytes(), "fedcba9876543210");
}

TEST(Secret, IsRefusedFromAFileThatOthersCanReadOrChange) {
  for (const mode_t mode : {0604, 0602, 0620, 0601, 0610}) {
    const SecretFile file("0123456789abcdef", mode);
    EXPECT_THAT(error_for(file.config()), AllOf(HasSubstr("tutti-secret-"), HasSubstr("chmod 600"),
                                                Not(HasSubstr("0123456789"))));
  }
}

struct stat status(uid_t owner, mode_t mode) {
  struct stat status {};
  status.st_uid = owner;
  status.st_mode = S_IFREG | mode;
  return status;
}

TEST(Secret, StaysInFilesOfTheUserAloneOrOfRootForAGroup) {
  const uid_t user = geteuid(), foreign = user + 1;
  EXPECT_EQ(why_not_private(status(user, 0600)), "");
  EXPECT_EQ(why_not_private(status(user, 0400)), "");
  EXPECT_EQ(why_not_private(status(0, 0440)), "") << "Kubernetes mounts secrets so";
  EXPECT_THAT(why_not_private(status(0, 0460)), HasSubstr("mode 460"));
  EXPECT_THAT(why_not_private(status(0, 0444)), HasSubstr("mode 444"));
  EXPECT_THAT(why_not_private(status(foreign, 0600)),
              AllOf(HasSubstr(fmt::format("user {}", foreign)), HasSubstr("chown")));
  if (user != 0) {
    EXPECT_THAT(why_not_private(status(user, 0440)), HasSubstr("mode 440"));
  }
}

TEST(Secret, IsRefusedWhereItIsTooShortAndNotShown) {
  for (const std::string text : {"", "\n", "short"}) {
    const SecretFile file(text);
    const std::string error = error_for(file.config());
    EXPECT_THAT(error, HasSubstr("openssl rand -hex 32"));
    EXPECT_THAT(error, Not(HasSubstr("'short'")));
  }
}

TEST(Secret, NamesAFileThatIsNotThere) {
  Config config;
  config.secret_file = "/no/such/file";
  EXPECT_THAT(error_for(config), AllOf(HasSubstr("/no/such/file"), HasSubstr("No such file")));
}

TEST(Secret, IsMadeOf256BitsAndNeverTwice) {
  SystemRandom random;
  const Secret one = make_secret(random), other = make_secret(random);
  EXPECT_EQ(one.bytes().size(), 64u);
  EXPECT_NE(one.bytes(), other.bytes());
}

}  // namespace
}  // namespace tutti
