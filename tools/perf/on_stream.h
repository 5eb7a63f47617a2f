// Makes the calls of a table on buffers of a GPU, ordered by a stream.
#pragma once

#include <vector>

#include <tutti/tutti.hpp>

#include "perf/gpus.h"
#include "perf/operations.h"

namespace tutti::perf {

/// Gives the call to the stream of `gpu`, whose memory has the buffers, and returns at once. What
/// is to be waited for is appended to `works`.
void start_on_stream(Communicator& comm, const Call& call, const Buffers& buffers,
                     const CallOptions& options, const GpuOfRank& gpu, std::vector<Work>& works);

}  // namespace tutti::perf
