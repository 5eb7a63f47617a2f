// Makes a transport whose connections are queue pairs of a device.
#pragma once

#include <memory>

#include "common/capabilities.h"
#include "transport/channel.h"
#include "transport/context.h"
#include "transport/queue_pair/device.h"

namespace tutti::qp {

/// Makes the transport of one communicator; those that are split off it share its connections.
/// `link` holds what a message costs; its largest message is set here. Throws `unavailable` where
/// the device can make no connection.
std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     const std::shared_ptr<Device>& device,
                                     const LinkCapabilities& link);

}  // namespace tutti::qp
