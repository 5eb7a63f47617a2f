// Reads what tutti-perf prints.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace tutti::tools {

/// Returns the fields of each row of the table.
inline std::vector<std::vector<std::string>> rows(const std::string& output) {
  std::vector<std::vector<std::string>> result;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    result.emplace_back();
    for (std::string field; fields >> field;) result.back().push_back(field);
  }
  return result;
}

}  // namespace tutti::tools
