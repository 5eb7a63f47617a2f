#include "common/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

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
  if ((info.st_mode & (S_IRWXO | S_IWGRP)) != 0)
    refuse(fmt::format("others may read or change it (mode {:o}); chmod 600", info.st_mode & 0777));
  std::array<char, kMostSecretBytes + 1> buffer;
  const ssize_t got = read(file.get(), buffer.data(), buffer.size());
  if (got < 0) refuse(std::strerror(errno));
  if (got > static_cast<ssize_t>(kMostSecretBytes)) refuse("it is longer than 4096 bytes");
  std::string secret(buffer.data(), static_cast<std::size_t>(got));
  if (secret.ends_with('\n')) secret.pop_back();
  return secret;
}

}  // namespace

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
