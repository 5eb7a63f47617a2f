#include "common/environment.h"

#include <unistd.h>

namespace tutti {

std::vector<std::string_view> process_environment() {
  std::vector<std::string_view> entries;
  if (environ == nullptr) return entries;  // after clearenv(3)
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

std::optional<std::string_view> find(Environment environment, std::string_view name) noexcept {
  for (const std::string_view entry : environment)
    if (entry.starts_with(name) && entry.substr(name.size(), 1) == "=")
      return entry.substr(name.size() + 1);
  return std::nullopt;
}

}  // namespace tutti
