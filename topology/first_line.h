// Files of /sys and /proc that hold one line.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace tutti {

/// Empty where there is no such file.
inline std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace tutti
