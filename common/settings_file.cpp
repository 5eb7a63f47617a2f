#include <fmt/format.h>
#include <sys/stat.h>

#include <sstream>

#include <tutti/error.hpp>

#include "common/files.h"
#include "common/secret.h"
#include "common/settings.h"
#include "common/text.h"

namespace tutti {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

}  // namespace

ConfigFile read_config_file(const std::string& path) {
  struct stat info {};
  std::istringstream text(read_file("TUTTI_CONFIG_FILE", path, kMostBytes, &info));
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
