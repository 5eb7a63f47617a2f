// Discovery of the machine's packages, NUMA nodes, caches and cores.
#pragma once

#include <optional>
#include <string>

#include "topology/machine.h"

namespace tutti {

/// Returns this machine as hwloc describes it, or plain_machine() if hwloc fails. hwloc heeds
/// HWLOC_XMLFILE and HWLOC_SYNTHETIC. A discovery takes milliseconds (topology/README.md), so a
/// start does not call it unless a setting asks for it. Never throws.
Machine discover();

/// Returns the number of the package that has all of these cpus of this machine. None if there is
/// no such package, if the system does not say, or if these are all cpus that are online. It reads
/// two files.
std::optional<int> package_of(const Cpus& cpus, const std::string& sys = "/sys");

/// Returns the machine that sysconf describes: one package with a core for each cpu.
Machine plain_machine(const Cpus& cpus);

/// Returns the machine of a synthetic description in hwloc's syntax, for example "pack:2 l3:1 l2:4
/// core:1 pu:2", or none if the description is wrong.
std::optional<Machine> describe(const std::string& synthetic);

}  // namespace tutti
