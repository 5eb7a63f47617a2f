// Processes of one user on one machine, over memory that they share.
#pragma once

#include <memory>
#include <string>

#include "transport/channel.h"
#include "transport/context.h"

namespace tutti::shm {

/// See TransportEntry.
std::string why_not(const TransportContext& context);
std::unique_ptr<Transport> make(const TransportContext& context);

}  // namespace tutti::shm
