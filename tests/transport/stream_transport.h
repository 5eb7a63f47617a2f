// A transport for tests: bytes over socket pairs, all channels of a pair in one stream of frames,
// and every bad habit of a network. There to keep the seam from being shaped by memory alone.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/fd.h"
#include "transport/channel.h"
#include "transport/context.h"

namespace tutti::stream {

/// How the wire misbehaves. The same seed misbehaves the same way.
struct Faults {
  std::uint64_t seed = 1;
  bool short_transfers = true;  ///< Reads and writes move fewer bytes than asked.
  std::uint64_t max_delay = 3;  ///< Calls of progress() that a frame waits before its bytes leave.
  std::uint64_t cut_after_bytes =
      std::numeric_limits<std::uint64_t>::max();  ///< Written to one peer: then the wire is cut.
};

/// mesh[a][b] is rank a's end of the wire to rank b. Made before ranks are given to threads or
/// processes.
std::vector<std::vector<Fd>> make_mesh(int size);

std::unique_ptr<Transport> make(const TransportContext& context, std::vector<Fd> wires,
                                const Faults& faults);

}  // namespace tutti::stream
