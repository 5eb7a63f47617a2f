// The main function of a tool whose arguments CLI11 reads.
#pragma once

#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/text.h"

namespace tutti::tools {

inline constexpr int kUsageStatus = 2;

/// Refuses what is not in this range; CLI::Range lets a NaN through.
inline CLI::Validator real_range(double least, double most) {
  CLI::Validator in_range = CLI::Range(least, most);
  CLI::Validator number(
      [](std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && std::isnan(value)
                   ? text + " is not a number"
                   : std::string();
      },
      "");
  return number & in_range;
}

/// Reads a size as `16M`, in powers of 1024. CLI::AsSizeValue alone takes -1 for a very large one.
inline CLI::Validator as_size() {
  return {[size = CLI::AsSizeValue(false)](std::string& text) {
            return text.starts_with('-') ? text + " is negative" : size(text);
          },
          "SIZE"};
}

/// Adds an option that takes a list, as in 2,4,8. CLI11's own lists pass over empty items. `checks`
/// are applied to each item.
template <typename T>
CLI::Option* add_list(CLI::App& command, const std::string& names, std::vector<T>& into,
                      const std::string& text, const std::vector<CLI::Validator>& checks = {}) {
  const auto read = [&into, names, checks](const std::vector<std::string>& given) {
    std::vector<T> list;
    for (const std::string& each : given)
      for (const std::string_view one : split(each, ',')) {
        std::string item(one);
        if (item.empty()) throw CLI::ValidationError(names, "an item of " + each + " is empty");
        for (const CLI::Validator& check : checks)
          if (const std::string why_not = check(item); !why_not.empty())
            throw CLI::ValidationError(names, why_not);
        if (!CLI::detail::lexical_cast(item, list.emplace_back()))
          throw CLI::ConversionError(item, names);
      }
    into = std::move(list);
  };
  std::string usual;
  for (const T& each : into) usual += (usual.empty() ? "" : ",") + CLI::detail::to_string(each);
  return command.add_option_function<std::vector<std::string>>(names, read, text)
      ->default_str(usual)
      ->type_name(CLI::detail::type_name<T>());
}

/// Returns the exit status of a tool that has done its work: `status`, or 1 in place of 0 where
/// standard output cannot be written.
inline int finished(const std::string& name, int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "%s: cannot write to standard output\n", name.c_str());
  return status != 0 ? status : 1;
}

/// Reads the arguments and calls `body`, which returns the exit status; it is 1 in place of 0 where
/// standard output cannot be written. An exception is printed on standard error: for wrong
/// arguments (CLI::ParseError) the status is kUsageStatus, and for every other exception it is
/// `status_of(exception)`.
template <typename Body, typename StatusOf>
int run_command(CLI::App& app, int argc, char** argv, Body body, StatusOf status_of) {
  const std::string name = app.get_name();
  try {
    app.parse(argc, argv);
    return finished(name, body());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return finished(name, app.exit(error));
    std::fprintf(stderr, "%s: %s\nTry `%s --help`.\n", name.c_str(), error.what(), name.c_str());
    return kUsageStatus;
  } catch (const std::exception& error) {
    // fmt::print throws where it finds out that standard output cannot be written.
    if (std::ferror(stdout) != 0) return finished(name, 0);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return status_of(error);
  }
}

}  // namespace tutti::tools
