// What tutti-info says about the machine.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "topology/machine.h"
#include "topology/placement.h"

namespace tutti::tools {

/// The machine, and what `ranks` ranks on it would get.
struct TopologyReport {
  Machine machine;
  int ranks = 1;
  Placement placement;
  std::size_t cache_bytes = 0;  ///< Of a core's second level; 0: unknown.
  std::size_t ring_bytes = 0;
};

/// `bind` as in the configuration.
TopologyReport look(int ranks, const std::string& bind);

std::string as_text(const TopologyReport& report);
nlohmann::ordered_json as_json(const TopologyReport& report);

}  // namespace tutti::tools
