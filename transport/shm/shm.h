// The transport between processes of one user on one machine, over memory that they share.
#pragma once

#include "transport/registry.h"

namespace tutti::shm {

TransportEntry entry();

}  // namespace tutti::shm
