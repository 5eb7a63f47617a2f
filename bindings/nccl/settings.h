// Reads the settings of a communicator: from the environment (TUTTI_* and NCCL_*), ncclConfig_t and
// ncclSetEncryption().
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tutti/config.hpp>

#include "bindings/nccl/abi.h"

namespace tutti::nccl {

struct Settings {
  Config config;
  bool blocking = true;
};

/// Reads the environment. Throws what Config::from_env() throws, and ncclInvalidArgument for an
/// NCCL_ALGO that names a function that is none. Other values that are none are named in the log
/// and have no effect. The first call of the process logs the NCCL_ variables that have none.
Settings settings_of_process();

/// Applies a program's struct of any version of nccl.h; null changes nothing. Throws
/// ncclInvalidArgument for values that are out of range, and ncclInvalidUsage for a network
/// plug-in.
void apply(const ncclConfig_t* config, Settings& settings);

/// Sets, as ncclSetEncryption() does, the encryption of communicators that are made from now on.
/// Throws ncclInvalidArgument.
void set_encryption(const ncclEncryptionConfig_t* config);

/// Returns the value of an NCCL_ variable that has an effect; none if it is not set, or empty.
std::optional<std::string> variable(const char* name);

/// Returns the NCCL_ variable that the program has set in place of the setting of tutti, such as
/// TUTTI_INTERFACES; null if there is none, or if both are set.
const char* standing_for(std::string_view setting) noexcept;

/// Describes a variable that has an effect.
struct Variable {
  const char* name;
  const char* effect;
};
/// Returns all of them; the last has a null name.
const Variable* known_variables() noexcept;

}  // namespace tutti::nccl
