#include "common/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <tutti/error.hpp>

#include "common/fd.h"
#include "common/text.h"

namespace tutti {
namespace {

constexpr std::size_t kMostSecretBytes = 4096;

std::string read_secret_file(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorKind::usage, fmt::format("the job's secret in {}: {}", shown(path), why));
  };
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) refuse(std::strerror(errno));
  if (const std::string why = why_not_private(info); !why.empty()) refuse(why);
  std::array<char, kMostSecretBytes + 1> buffer;
  const ssize_t got = read(file.get(), buffer.data(), buffer.size());
  if (got < 0) refuse(std::strerror(errno));
  if (got > static_cast<ssize_t>(kMostSecretBytes)) refuse("it is longer than 4096 bytes");
  std::string secret(buffer.data(), static_cast<std::size_t>(got));
  if (secret.ends_with('\n')) secret.pop_back();
  return secret;
}

}  // namespace

std::string why_not_private(const struct stat& info) {
  const uid_t user = geteuid();
  if (info.st_uid != user && info.st_uid != 0)
    return fmt::format("it belongs to user {}, and this process runs as user {}; chown it to {}",
                       info.st_uid, user, user);
  const mode_t others = info.st_uid == 0 ? S_IRWXO | S_IWGRP | S_IXGRP : mode_t{S_IRWXO | S_IRWXG};
  if ((info.st_mode & others) == 0) return {};
  return fmt::format("others may read or change it (mode {:o}); chmod 600", info.st_mode & 0777);
}

void refuse_tls_without_secret(int rank) {
  throw Error(ErrorKind::usage,
              fmt::format("rank {}: TUTTI_TLS=yes takes its keys from the job's secret, and this "
                          "rank has none. {}",
                          rank, kHowToMakeSecret));
}

Secret make_secret(Random& random) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:016x}", random.next());
  assert(text.size() >= kLeastSecretBytes);
  return Secret(std::move(text));
}

Secret configured_secret(const Config& config) {
  if (config.secret.empty() && config.secret_file.empty()) return {};
  std::string secret = config.secret.empty() ? read_secret_file(config.secret_file) : config.secret;
  if (secret.size() < kLeastSecretBytes)
    throw Error(ErrorKind::usage,
                fmt::format("the job's secret (TUTTI_SECRET, or TUTTI_SECRET_FILE's) has fewer "
                            "than {} bytes: make one with `openssl rand -hex 32`",
                            kLeastSecretBytes));
  return Secret(std::move(secret));
}

}  // namespace tutti
