#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <tutti/error.hpp>

#include "common/config.h"
#include "common/knobs.h"
#include "common/text.h"

namespace tutti {
namespace {

constexpr std::uintmax_t kMostBytes = 1 << 20;

// Reads a plain file of limited size, and nothing else: opening a pipe could block forever, and
// reading a device need not end.
std::string read_whole(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorKind::usage,
                fmt::format("TUTTI_CONFIG_FILE is {}: {}; give a readable plain file of at most {}",
                            shown(path), why, write_bytes(kMostBytes)));
  };
  std::error_code failed;
  const auto status = std::filesystem::status(path, failed);
  if (failed) refuse(failed.message());
  if (!std::filesystem::is_regular_file(status)) refuse("not a plain file");
  const std::uintmax_t bytes = std::filesystem::file_size(path, failed);
  if (failed) refuse(failed.message());
  if (bytes > kMostBytes) refuse("too large");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse("cannot be opened");
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
