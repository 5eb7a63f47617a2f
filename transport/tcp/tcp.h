// Ranks on any machines, by TCP.
#pragma once

#include <memory>
#include <string>

#include "transport/channel.h"
#include "transport/context.h"

namespace tutti::tcp {

/// Empty: it can serve.
std::string why_not(const TransportContext& context);

std::unique_ptr<Transport> make(const TransportContext& context);

}  // namespace tutti::tcp
