// The transports as tutti-info shows them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tutti/config.hpp>

#include "common/capabilities.h"

namespace tutti::tools {

/// Says what this process can do with one transport.
struct TransportReport {
  std::string name;
  std::string why_not;    ///< Why it cannot be used here; empty if it can.
  LinkCapabilities link;  ///< Of two ranks at this place; meaningless where it cannot be used.
};

/// Makes each transport that `config` allows, in the order in which ranks prefer them, as one of
/// two ranks of this machine would, and ends it again. Throws `usage` if `config` names an unknown
/// one.
std::vector<TransportReport> look_at_transports(const Config& config);

std::string as_text(const std::vector<TransportReport>& reports);
nlohmann::ordered_json as_json(const std::vector<TransportReport>& reports);

}  // namespace tutti::tools
