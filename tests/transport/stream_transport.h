// A transport for tests that sends bytes over socket pairs, with all channels of a pair in one
// stream of frames, and shows every unpleasant behaviour of a network. It keeps the transport
// interface from being shaped by shared memory alone.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/fd.h"
#include "transport/channel.h"
#include "transport/context.h"

namespace tutti::stream {

/// How the connection misbehaves. The same seed leads to the same behaviour.
struct Faults {
  std::uint64_t seed = 1;
  bool short_transfers = true;  ///< Reads and writes move fewer bytes than asked.
  /// The most calls of progress() for which a frame waits before its bytes leave.
  std::uint64_t max_delay = 3;
  /// The bytes written to one peer after which the connection is cut.
  std::uint64_t cut_after_bytes = std::numeric_limits<std::uint64_t>::max();
};

/// mesh[a][b] is rank a's end of the connection to rank b. It is made before ranks are given to
/// threads or processes.
std::vector<std::vector<Fd>> make_mesh(int size);

std::unique_ptr<Transport> make(const TransportContext& context, std::vector<Fd> wires,
                                const Faults& faults);

}  // namespace tutti::stream
