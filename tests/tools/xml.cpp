#include "xml.h"

#include <regex>
#include <vector>

namespace tutti::tools {

std::string xml_mistake(std::string_view text) {
  static const std::regex tag(R"re(<(/?)([A-Za-z][\w-]*)((?:\s+[\w:-]+="[^"<]*")*)\s*(/?)>)re");
  static const std::regex bare(R"re(&(?!(?:lt|gt|amp|quot|apos);)|>|<)re");
  const std::string document(text);
  std::vector<std::string> open;
  int roots = 0;
  auto at = document.begin();
  for (std::smatch match; std::regex_search(at, document.end(), match, tag);) {
    const std::string between(at, match[0].first);
    const std::string found = match.str();
    if (std::regex_search(between, bare)) return "a bare character before " + found;
    if (open.empty() && between.find_first_not_of(" \n") != std::string::npos)
      return "text outside the root before " + found;
    const bool closes = match[1].length() > 0, alone = match[4].length() > 0;
    if (!closes && open.empty() && ++roots > 1) return "a second root: " + found;
    if (closes) {
      if (open.empty() || open.back() != match[2]) return found + " closes nothing";
      open.pop_back();
    } else if (!alone) {
      open.push_back(match[2]);
    }
    at = match[0].second;
  }
  const std::string rest(at, document.end());
  if (rest.find_first_not_of(" \n") != std::string::npos) return "after the last tag: " + rest;
  if (!open.empty()) return "<" + open.back() + "> is not closed";
  return roots == 1 ? "" : "no root";
}

}  // namespace tutti::tools
