// Ranks on any machines, over TCP connections between each two of them.
#pragma once

#include "transport/registry.h"

namespace tutti::tcp {

TransportEntry entry();

}  // namespace tutti::tcp
