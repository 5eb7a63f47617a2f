// Calls that are part of CUDA graphs.
//
// A call whose stream is captured is not executed: its copies, a host function and a wait become
// nodes of the graph. At each replay the host function starts the call once more, under the next
// operation number, and the wait ends with the call. So nothing of one execution is part of a node.
#pragma once

#include <cstdint>
#include <map>

#include "common/sync.h"
#include "devices/gpu_driver.h"
#include "runtime/communicator_parts.h"
#include "runtime/operation.h"

namespace tutti {

class Queue;

/// Knows the calls of one communicator that graphs hold. The calling thread adds them, and any
/// thread may end a graph, which calls into this object.
class Captures {
 public:
  /// `queue` outlives it.
  explicit Captures(Queue& queue) : queue_(queue) {}
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  // Functions for the calling thread. They throw `unavailable` where the driver refuses something;
  // the program's graph is of no use then.

  /// Has the graph for which `stream` is captured keep the call until the graph has ended.
  void keep(const cuda::Driver& driver, cuda::Stream stream, Operation& call);
  /// Gives the graph the function that starts the call. It comes behind those of the calls that
  /// were captured before, on whatever stream they are, so that all ranks start them in one order.
  void add_start(const cuda::Driver& driver, cuda::Stream stream, cuda::HostFunction start,
                 Operation& call);

  /// Returns whether graphs hold calls. Any thread may call it.
  bool any() const noexcept { return any_.load(std::memory_order_seq_cst); }

  /// Takes from the calls what belongs to the communicator of `parts`, which ends: nothing starts
  /// them any more. Logs how many there are. The driver tells of the end of a graph some time
  /// later, so that a program which has destroyed all graphs before gets no warning.
  void let_go(const CommunicatorParts& parts) noexcept;

 private:
  cuda::GraphNode last_start(std::uint64_t capture);
  static void graph_ended(void* call) noexcept;
  void remove(Operation& call) noexcept;

  Queue& queue_;
  sync::Mutex mutex_;
  std::map<Operation*, std::uint64_t> calls_;  // guarded by mutex_: each has a reference, and the
                                               // number of the capture to which it was added
  std::map<std::uint64_t, cuda::GraphNode> last_starts_;  // guarded by mutex_: the node that starts
                                                          // the last call of each capture
  sync::Atomic<bool> any_{false};
};

}  // namespace tutti
