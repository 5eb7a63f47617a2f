// The table of settings behind tutti::Config. It serves the reading and checking of settings, the
// comparison of settings among ranks, and `tutti-info --config`. A setting has one row in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tutti/config.hpp>

#include "common/environment.h"

namespace tutti {

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
