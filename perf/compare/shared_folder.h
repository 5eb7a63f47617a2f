// What ranks tell each other through files in the folder that they share, before their library can.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

namespace tutti::compare {

/// Writes a file as a whole: a rank that reads it finds all of it, or no file.
inline void tell(const std::filesystem::path& path, std::span<const char> data) {
  std::filesystem::path unfinished = path;
  unfinished += ".unfinished";
  std::ofstream file(unfinished, std::ios::binary);
  if (!file.write(data.data(), static_cast<std::streamsize>(data.size())).flush())
    throw std::runtime_error("cannot write " + unfinished.string());
  std::filesystem::rename(unfinished, path);
}

/// Reads what a rank has told; returns false if it has not done so yet.
inline bool heard(const std::filesystem::path& path, std::span<char> data) {
  std::ifstream file(path, std::ios::binary);
  return static_cast<bool>(file.read(data.data(), static_cast<std::streamsize>(data.size())));
}

/// Waits until a rank has told it.
inline void hear(const std::filesystem::path& path, std::span<char> data) {
  while (!heard(path, data)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace tutti::compare
