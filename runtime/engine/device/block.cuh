// A block begins and ends here, and tells the other blocks of its launch and the host that it does.
// One thread of the block calls these functions.
#pragma once

#include "runtime/engine/device/records.h"
#include "runtime/engine/device/words.cuh"

namespace tutti::device {

/// Begins a block: returns false if it has to end at once, because the host has stopped the engine.
__device__ inline bool enter(const CallRecord& call) {
  if (blockIdx.x == 0) store_release_system(&call.control->entered, call.launch);
  count_up_gpu(&call.counts->started);
  fence_system();
  if (load_acquire_system(&call.control->aborted) == 0) return true;
  count_up_gpu(&call.counts->ended);
  return false;
}

/// Ends a block, `finished` if it has come to the end of its lane in this launch. All that the
/// block has done is before it. Once the host finds as many blocks ended as started, none of them
/// stores `done` any more, and none uses the counts.
__device__ inline void leave(const CallRecord& call, bool finished) {
  Counts& counts = *call.counts;
  if (finished) count_up_gpu(&counts.finished);
  const bool last = count_up_gpu(&counts.exits) == call.blocks;
  if (last) {
    counts.exits = 0;
    // The next launch may begin, and end, as soon as one of the two is stored.
    if (counts.finished < call.blocks) {
      store_release_system(&call.control->exited, call.launch);
    } else {
      counts.finished = 0;
      store_release_system(&call.control->done, call.ticket);
    }
  }
  count_up_gpu(&counts.ended);
}

}  // namespace tutti::device
