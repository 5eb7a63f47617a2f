#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <tutti/error.hpp>

#include "common/config.h"
#include "common/text.h"

namespace tutti {
namespace {

constexpr std::uintmax_t kMostBytes = 1 << 20;

// Only a plain file of sane size: opening a pipe could block for ever, a device never ends.
std::string read_whole(const std::string& path) {
  std::error_code failed;
  const bool plain = std::filesystem::is_regular_file(path, failed);
  const std::uintmax_t bytes = plain ? std::filesystem::file_size(path, failed) : 0;
  std::ifstream file(path, std::ios::binary);
  if (failed || !plain || bytes > kMostBytes || !file)
    throw Error(ErrorKind::usage,
                fmt::format("TUTTI_CONFIG_FILE is {}: {}; give a readable plain file of at most {}",
                            shown(path),
                            failed               ? failed.message()
                            : !plain             ? "not a plain file"
                            : bytes > kMostBytes ? "too large"
                                                 : "cannot be read",
                            write_bytes(kMostBytes)));
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

std::vector<FileLine> read_config_file(const std::string& path) {
  std::istringstream text(read_whole(path));
  std::vector<FileLine> lines;
  int number = 0;
  for (std::string raw; std::getline(text, raw);) {
    ++number;
    const std::string_view line = trim(std::string_view(raw).substr(0, raw.find('#')));
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      throw Error(ErrorKind::usage,
                  fmt::format("{}:{}: {} is not `name = value`", path, number, shown(line)));
    lines.push_back({number, std::string(trim(line.substr(0, equals))),
                     std::string(trim(line.substr(equals + 1)))});
  }
  return lines;
}

}  // namespace tutti
