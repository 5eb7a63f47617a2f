// Makes a transport whose connections are queue pairs of devices.
#pragma once

#include <memory>
#include <vector>

#include "common/capabilities.h"
#include "transport/channel.h"
#include "transport/context.h"
#include "transport/queue_pair/device.h"

namespace tutti::qp {

/// Makes the transport of one communicator; those that are split off it share its connections.
/// `devices` are the ports that it may use, and `paths` how many queue pairs are made to each peer:
/// 0 where that is to be chosen. They are made at once to the `at_once` peers whose numbers are
/// nearest to the rank's own, going around from the last rank to the first; to others when there is
/// a message. `link` holds what a message costs; its largest message is set here. Throws
/// `unavailable` where the first device can make no connection.
std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     std::vector<std::shared_ptr<Device>> devices,
                                     const LinkCapabilities& link, int paths, int at_once);

}  // namespace tutti::qp
