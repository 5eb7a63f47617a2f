#include "common/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <tutti/error.hpp>

#include "common/fd.h"
#include "common/knobs.h"
#include "common/text.h"

namespace tutti {

std::string read_file(std::string_view what, const std::string& path, std::size_t most_bytes,
                      struct stat* status) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorKind::usage,
                fmt::format("{} is {}: {}; give a readable plain file of at most {}", what,
                            shown(path), why, write_bytes(most_bytes)));
  };
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) refuse("not a plain file");
  if (static_cast<std::size_t>(info.st_size) > most_bytes) refuse("too large");
  if (status != nullptr) *status = info;
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

}  // namespace tutti
