// Finding out what the machine is like.
#pragma once

#include <optional>
#include <string>

#include "topology/machine.h"

namespace tutti {

/// This machine, by hwloc, which heeds HWLOC_XMLFILE and HWLOC_SYNTHETIC; where hwloc cannot tell:
/// plain_machine(). Takes milliseconds (topology/README.md), so nobody calls it at start-up
/// unasked. Never throws.
Machine discover();

/// What sysconf tells: one package with a core for each cpu.
Machine plain_machine(const Cpus& cpus);

/// By hwloc's description, for example "pack:2 l3:1 l2:4 core:1 pu:2"; none where it is wrong.
std::optional<Machine> describe(const std::string& synthetic);

}  // namespace tutti
