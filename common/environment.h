// The environment of the process, handed in: tests write their own.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti {

/// Entries NAME=VALUE. Where a name comes twice the first counts, as for getenv(3).
using Environment = std::span<const std::string_view>;

/// This process's environment. The views are valid until somebody changes it.
std::vector<std::string_view> process_environment();

/// The value of `name`; none where it is not set.
std::optional<std::string_view> find(Environment environment, std::string_view name) noexcept;

}  // namespace tutti
