// The table behind tutti::Config: one row for each knob, from which reading, checking, agreement
// and `tutti-info --config` all follow.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/config.hpp>

#include "common/environment.h"
#include "common/knobs.h"

namespace tutti {

/// To add a knob: its member in tutti::Config, its row in config.cpp, and the line in
/// docs/configuration.md that a test asks for. Files, the environment, the C ABI and Python take it
/// from the row.
struct Knob {
  std::string_view name;  ///< "timeout_ms": so in a file, and TUTTI_TIMEOUT_MS as a variable.
  KnobKind kind;
  bool agree;  ///< Ranks refuse to start together when their values differ.
  std::string_view sentence;

  std::string variable() const;
  std::string write(const Config& config) const;
  std::string range() const;
  bool is_secret() const noexcept;  ///< Its value goes into no message; write() hides it.
};

std::span<const Knob> knobs() noexcept;

/// Defaults, then the file that TUTTI_CONFIG_FILE names, then the environment. Throws `usage`.
Config resolve_config(Environment environment);

/// Throws `usage` for a value out of its range, for a configuration that a program has filled.
void check_config(const Config& config);

/// The settings that must agree, as "name=value" lines in the order of the table.
std::string agree_text(const Config& config);

/// One knob as a person wants to see it.
struct Setting {
  std::string name;
  std::string variable;
  std::string value;
  std::string default_value;
  std::string range;
  std::string source;  ///< "default", or as in Config::origins; "program" where the program has
                       ///< assigned another value than was read.
  std::string sentence;
  bool agree = false;
};

/// All knobs, in the order of the table.
std::vector<Setting> list_settings(const Config& config);

/// One `name = value` line of a configuration file.
struct FileLine {
  int number;
  std::string name;
  std::string value;
};

/// The lines of the file at `path` that are not empty and no comments (from '#' on). Throws `usage`
/// naming file and line.
std::vector<FileLine> read_config_file(const std::string& path);

}  // namespace tutti
