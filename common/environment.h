// Environment variables, passed as a list, so that tests can supply their own.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti {

/// Entries of the form NAME=VALUE. If a name occurs twice, the first entry counts, as for
/// getenv(3).
using Environment = std::span<const std::string_view>;

/// Returns this process's environment. The views are valid until somebody changes the environment.
std::vector<std::string_view> process_environment();

/// Returns the value of `name`, or none if it is not set.
std::optional<std::string_view> find(Environment environment, std::string_view name) noexcept;

}  // namespace tutti
