#include "tools/plan/topology.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <tutti/config.hpp>
#include <tutti/error.hpp>

#include "common/text.h"
#include "topology/discover_topology.h"
#include "topology/nccl_xml.h"
#include "topology/topology_file.h"

namespace tutti::tools {

namespace {

Fabric named_by_variable(const std::string& file) {
  try {
    return read_topology_file(file);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("TUTTI_TOPOLOGY_FILE: {}", error.what()));
  }
}

}  // namespace

NamedTopology topology_of(const std::string& path, const std::string& sys) {
  const auto stem = [](const std::string& file) {
    return std::filesystem::path(file).stem().string();
  };
  if (!path.empty()) return {read_topology_file(path), stem(path), {}};
  if (sys.empty())
    if (const std::string file = Config::from_env().topology_file; !file.empty())
      return {named_by_variable(file), stem(file),
              fmt::format("the topology of TUTTI_TOPOLOGY_FILE, {}", file)};
  std::error_code unknown;
  if (!sys.empty() && !std::filesystem::is_directory(sys, unknown))
    throw Error(ErrorKind::usage, fmt::format("--sys: {} is no folder", shown(sys)));
  TopologySources sources;
  if (!sys.empty()) sources.gpus = {sys, ""};
  DiscoveredTopology found = discover_topology(sources);
  return {fabric_of(read_nccl_topology("this machine", found.xml)), "here",
          std::move(found.source)};
}

}  // namespace tutti::tools
