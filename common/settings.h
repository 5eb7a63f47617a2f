// The table of settings behind tutti::Config. It serves the reading and checking of settings, the
// comparison of settings among ranks, and `tutti-info --config`. A setting has one row in it.
#pragma once

#include <string>
#include <vector>

#include <tutti/config.hpp>

#include "common/environment.h"

namespace tutti {

/// Reads the defaults, then the file that TUTTI_CONFIG_FILE names, then the environment. Throws
/// `usage`.
Config resolve_config(Environment environment);

/// Checks a configuration that a program has filled. Throws `usage` for a value out of its range.
void check_config(const Config& config);

/// Returns the settings that must agree among ranks, as "name=value" lines in the order of the
/// table.
std::string agree_text(const Config& config);

/// A setting in the form in which it is shown to users.
struct Setting {
  std::string name;
  std::string variable;
  std::string value;
  std::string default_value;
  std::string range;
  /// Either "default" or a text as in Config::origins, or "program" if the program has assigned
  /// another value than the one that was read.
  std::string source;
  std::string sentence;
  bool agree = false;
};

/// Returns all settings, in the order of the table.
std::vector<Setting> list_settings(const Config& config);

/// A `name = value` line of a configuration file.
struct FileLine {
  int number;
  std::string name;
  std::string value;
};

struct ConfigFile {
  /// The lines that are neither empty nor comments, which begin with '#'.
  std::vector<FileLine> lines;
  std::string why_not_private;  ///< See common/secret.h.
};

/// Reads the file at `path`. Throws `usage`, naming the file and the line.
ConfigFile read_config_file(const std::string& path);

}  // namespace tutti
