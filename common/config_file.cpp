#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include <tutti/error.hpp>

#include "common/config.h"
#include "common/fd.h"
#include "common/knobs.h"
#include "common/secret.h"
#include "common/text.h"

namespace tutti {
namespace {

constexpr off_t kMostBytes = 1 << 20;

// Reads a plain file of limited size, and nothing else: opening a pipe could block forever, and
// reading a device need not end.
std::string read_whole(const std::string& path, struct stat& info) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorKind::usage,
                fmt::format("TUTTI_CONFIG_FILE is {}: {}; give a readable plain file of at most {}",
                            shown(path), why, write_bytes(kMostBytes)));
  };
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file || fstat(file.get(), &info) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) refuse("not a plain file");
  if (info.st_size > kMostBytes) refuse("too large");
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got = read(file.get(), text.data() + bytes, text.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(std::strerror(errno));
    if (got == 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  text.resize(bytes);
  return text;
}

}  // namespace

ConfigFile read_config_file(const std::string& path) {
  struct stat info {};
  std::istringstream text(read_whole(path, info));
  ConfigFile file{{}, why_not_private(info)};
  int number = 0;
  for (std::string raw; std::getline(text, raw);) {
    ++number;
    const std::string_view line = trim(std::string_view(raw).substr(0, raw.find('#')));
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      throw Error(ErrorKind::usage,
                  fmt::format("{}:{}: {} is not `name = value`", path, number, shown(line)));
    file.lines.push_back({number, std::string(trim(line.substr(0, equals))),
                          std::string(trim(line.substr(equals + 1)))});
  }
  return file;
}

}  // namespace tutti
