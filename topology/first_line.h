// Reads files of /sys and /proc that contain one line.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace tutti {

/// Returns the first line of the file, or an empty string if the file cannot be read.
inline std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace tutti
