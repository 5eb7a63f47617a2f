// Reads files of /sys and /proc that contain one line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace tutti {

/// On most machines /sys gives so many bytes of one file at most.
constexpr std::size_t kMostLineBytes = 4096;

/// Returns the first line of the file. Returns an empty string if it cannot be read, if it is no
/// regular file, which in a copy of /sys might never end, or if the line is longer than `most`.
inline std::string first_line(const std::filesystem::path& path,
                              std::size_t most = kMostLineBytes) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return {};
  std::ifstream file(path);
  std::string text(most + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const std::size_t end = text.find('\n');
  if (end == std::string::npos && text.size() > most) return {};
  text.resize(std::min(end, text.size()));
  return text;
}

}  // namespace tutti
