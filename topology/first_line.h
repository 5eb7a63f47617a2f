// Reads short files of /sys and /proc, most of which contain one line.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>

#include "common/fd.h"

namespace tutti {

/// On most machines /sys gives so many bytes of one file at most.
constexpr std::size_t kMostLineBytes = 4096;

/// Returns the first `most` bytes of the file and one more. Returns an empty string if it cannot be
/// read, or if it is no regular file, which in a copy of /sys might never end.
inline std::string short_text(const std::filesystem::path& path, std::size_t most) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  std::string text(most + 1, '\0');
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t more = read(file.get(), text.data() + bytes, text.size() - bytes);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    bytes += static_cast<std::size_t>(more);
  }
  text.resize(bytes);
  return text;
}

/// Returns the first line of the file, or an empty string where short_text() is, or if the line is
/// longer than `most`.
inline std::string first_line(const std::filesystem::path& path,
                              std::size_t most = kMostLineBytes) {
  std::string text = short_text(path, most);
  const std::size_t end = text.find('\n');
  if (end == std::string::npos && text.size() > most) return {};
  text.resize(std::min(end, text.size()));
  return text;
}

}  // namespace tutti
