// The transport between ranks on any machines, over a TCP connection between each two of them.
#pragma once

#include "transport/registry.h"

namespace tutti::tcp {

TransportEntry entry();

}  // namespace tutti::tcp
