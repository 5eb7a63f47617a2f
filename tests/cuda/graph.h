// Graphs of the stand-in: work that streams hand over while they are captured, to be run again and
// again.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/cuda/driver.h"

namespace tutti::stand_in {

struct Node {
  CUgraphNodeType type;
  std::function<void()> work;
  std::vector<Node*> after;
  Event* recorded = nullptr;  ///< The event that the node records, if it is one outside the graph.
};

/// Calls its function in a thread of the driver once nobody keeps it any more.
struct UserObject {
  void* pointer;
  CUhostFn destroy;
  std::atomic<unsigned> references;
};
void release(UserObject* object, unsigned count);

/// Counts how often each user object is kept.
using Kept = std::map<UserObject*, unsigned>;

struct Graph {
  ~Graph();
  std::vector<std::shared_ptr<Node>> nodes;
  Kept kept;
};

/// A graph as it was when it was instantiated. Its launches run one after the other.
class GraphExec {
 public:
  explicit GraphExec(const Graph& graph);
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;

  /// Says that a launch comes, which records the events of the graph.
  void begin();
  /// Runs every node after those before it. Nodes that nothing orders run side by side.
  void run();

 private:
  struct Run;
  void run_from(Run& run, std::size_t node);

  const std::vector<std::shared_ptr<Node>> nodes_;
  std::vector<std::vector<std::size_t>> next_;
  std::vector<int> before_;
  Kept kept_;
  std::mutex mutex_;
};

/// A capture that has begun and not ended. The lock of captures() is held for all that it holds.
struct Capture {
  unsigned long long id;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  const Stream* origin;
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::map<const Stream*, std::vector<Node*>> last =
      {};  ///< What comes next on a stream is after these.
  bool valid = true;
};

struct Captures {
  std::recursive_mutex mutex;
  std::vector<std::shared_ptr<Capture>> all;
  unsigned long long begun = 0;

  /// The capture of which a stream is a part, or null.
  std::shared_ptr<Capture> of(const Stream& stream) const;
};
Captures& captures();

/// Adds work to the graph of a stream that is captured, and returns true, with the result in
/// `*result`. Returns false where the stream is not captured.
bool record(const std::shared_ptr<Stream>& stream, CUgraphNodeType type,
            std::function<void()>& work, CUresult* result);

/// Refuses a call that could be a part of what a capture should record, as the mode of this thread
/// says, and makes the capture invalid.
CUresult check_safe();

}  // namespace tutti::stand_in
