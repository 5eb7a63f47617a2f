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
  for (const mode_t mode : {0604, 0602, 0620}) {
    const SecretFile file("0123456789abcdef", mode);
    EXPECT_THAT(error_for(file.config()), AllOf(HasSubstr("tutti-secret-"), HasSubstr("chmod 600"),
                                                Not(HasSubstr("0123456789"))));
  }
  const SecretFile for_a_group("0123456789abcdef", 0440);
  EXPECT_NO_THROW(configured_secret(for_a_group.config()));
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
