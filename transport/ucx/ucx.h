// Declares the transport between ranks that UCX joins, by libucp.
#pragma once

#include "transport/registry.h"

namespace tutti::ucx {

TransportEntry entry();

}  // namespace tutti::ucx
