#include "tests/cuda/graph.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

namespace tutti::stand_in {

Captures& captures() { return only<Captures>(); }

std::shared_ptr<Capture> Captures::of(const Stream& stream) const {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& each) { return each->last.count(&stream) > 0; });
  return found == all.end() ? nullptr : *found;
}

void release(UserObject* object, unsigned count) {
  if (object->references.fetch_sub(count) > count) return;
  std::thread frees([object] {
    in_host_function() = true;
    object->destroy(object->pointer);
    delete object;
  });
  pthread_setname_np(frees.native_handle(), "frees-graph");  // Tests look for it.
  frees.detach();
}

Graph::~Graph() {
  for (const auto& [object, count] : kept) release(object, count);
}

GraphExec::GraphExec(const Graph& graph)
    : nodes_(graph.nodes), next_(nodes_.size()), before_(nodes_.size()), kept_(graph.kept) {
  std::map<const Node*, std::size_t> numbers;
  for (std::size_t number = 0; number < nodes_.size(); ++number) {
    numbers[nodes_[number].get()] = number;
    const std::set<const Node*> after(nodes_[number]->after.begin(), nodes_[number]->after.end());
    before_[number] = static_cast<int>(after.size());
    for (const Node* each : after) next_[numbers.at(each)].push_back(number);
  }
  for (const auto& [object, count] : kept_) object->references += count;
}

GraphExec::~GraphExec() {
  for (const auto& [object, count] : kept_) release(object, count);
}

void GraphExec::begin() {
  for (const auto& node : nodes_) {
    if (node->recorded == nullptr) continue;
    const std::lock_guard lock(node->recorded->mutex);
    node->recorded->captured = false;
    node->recorded->stream = nullptr;
    ++node->recorded->launches;
  }
}

struct GraphExec::Run {
  std::vector<std::atomic<int>> before;
  std::mutex mutex;
  std::vector<std::thread> threads;
};

void GraphExec::run() {
  const std::lock_guard lock(mutex_);
  Run run{std::vector<std::atomic<int>>(nodes_.size()), {}, {}};
  for (std::size_t node = 0; node < nodes_.size(); ++node) run.before[node] = before_[node];
  for (std::size_t node = 0; node < nodes_.size(); ++node)
    if (before_[node] == 0) {
      const std::lock_guard adding(run.mutex);
      run.threads.emplace_back([this, &run, node] { run_from(run, node); });
    }
  for (std::size_t joined = 0;; ++joined) {
    std::thread next;
    {
      const std::lock_guard adding(run.mutex);
      if (joined == run.threads.size()) return;
      next.swap(run.threads[joined]);
    }
    next.join();
  }
}

void GraphExec::run_from(Run& run, std::size_t node) {
  for (bool goes_on = true; goes_on;) {
    jitter(node << 20);
    nodes_[node]->work();
    goes_on = false;
    const std::vector<std::size_t>& next = next_[node];
    for (const std::size_t each : next) {
      if (--run.before[each] > 0) continue;
      if (!goes_on) {
        goes_on = true;
        node = each;
        continue;
      }
      const std::lock_guard adding(run.mutex);
      run.threads.emplace_back([this, &run, each] { run_from(run, each); });
    }
  }
}

bool record(const std::shared_ptr<Stream>& stream, CUgraphNodeType type,
            std::function<void()>& work, CUresult* result) {
  const std::lock_guard lock(captures().mutex);
  *result = CUDA_SUCCESS;
  if (captures().all.empty()) return false;
  const std::shared_ptr<Capture> capture = captures().of(*stream);
  if (capture == nullptr) {
    if (stream != stream->context().stream(nullptr)) return false;
    for (const auto& each : captures().all)
      for (const auto& [other, last] : each->last)
        if (other->blocking() && &other->context() == &stream->context()) {
          each->valid = false;
          *result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return *result != CUDA_SUCCESS;
  }
  if (!capture->valid) {
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return true;
  }
  std::vector<Node*>& last = capture->last[stream.get()];
  capture->graph->nodes.push_back(
      std::make_shared<Node>(Node{type, std::move(work), std::move(last)}));
  last = {capture->graph->nodes.back().get()};
  return true;
}

}  // namespace tutti::stand_in
