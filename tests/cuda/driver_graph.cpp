// Captures of streams, graphs, and objects that graphs keep.
#include <algorithm>
#include <set>
#include <thread>

#include "tests/cuda/graph.h"

using namespace tutti::stand_in;

namespace tutti::stand_in {
namespace {

CUstreamCaptureMode& mode_of_thread() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

}  // namespace

CUresult check_safe() {
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const CUstreamCaptureMode mode = mode_of_thread();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const std::lock_guard lock(captures().mutex);
  CUresult result = CUDA_SUCCESS;
  for (const auto& each : captures().all) {
    const bool mine = each->thread == std::this_thread::get_id();
    const bool forbids =
        mine ? each->mode != CU_STREAM_CAPTURE_MODE_RELAXED
             : each->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!forbids) continue;
    each->valid = false;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

}  // namespace tutti::stand_in

namespace {

Graph* graph_of(CUgraph handle) { return reinterpret_cast<Graph*>(handle); }
CUgraph handle_of(Graph* graph) { return reinterpret_cast<CUgraph>(graph); }
UserObject* object_of(CUuserObject handle) { return reinterpret_cast<UserObject*>(handle); }
using Exec = std::shared_ptr<GraphExec>;
Exec* exec_of(CUgraphExec handle) { return reinterpret_cast<Exec*>(handle); }

// Returns whether all that the capture's streams have handed over comes before the end of its
// origin.
bool is_joined(const Capture& capture) {
  std::set<const Node*> joined;
  std::vector<const Node*> open(capture.last.at(capture.origin).begin(),
                                capture.last.at(capture.origin).end());
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (joined.insert(node).second) open.insert(open.end(), node->after.begin(), node->after.end());
  }
  return std::all_of(capture.last.begin(), capture.last.end(), [&](const auto& stream) {
    return std::all_of(stream.second.begin(), stream.second.end(),
                       [&](const Node* node) { return joined.count(node) > 0; });
  });
}

}  // namespace

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  std::swap(*mode, mode_of_thread());
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream == nullptr) return refusal;
  if (stream == stream->context().stream(nullptr)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(captures().mutex);
  if (captures().of(*stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  captures().all.push_back(std::make_shared<Capture>(
      Capture{++captures().begun, mode, std::this_thread::get_id(), stream.get()}));
  captures().all.back()->last[stream.get()] = {};
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream == nullptr) return refusal;
  *graph = nullptr;
  const std::lock_guard lock(captures().mutex);
  const std::shared_ptr<Capture> capture = captures().of(*stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (capture->origin != stream.get()) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  captures().all.erase(std::find(captures().all.begin(), captures().all.end(), capture));
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!is_joined(*capture)) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = handle_of(capture->graph.release());
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** last,
                                const CUgraphEdgeData** edges, std::size_t* count) {
  CUresult refusal = CUDA_SUCCESS;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto stream = find_stream(handle, &refusal);
  if (stream == nullptr) return refusal;
  const std::lock_guard lock(captures().mutex);
  const std::shared_ptr<Capture> capture = captures().of(*stream);
  if (capture == nullptr) return CUDA_SUCCESS;
  *status = capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (!capture->valid) return CUDA_SUCCESS;
  const std::vector<Node*>& nodes = capture->last.at(stream.get());
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = handle_of(capture->graph.get());
  if (last != nullptr) *last = reinterpret_cast<const CUgraphNode*>(nodes.data());
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = nodes.size();
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return cuStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* nodes,
                                           const CUgraphEdgeData*, std::size_t count,
                                           unsigned flags) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream == nullptr) return refusal;
  const std::lock_guard lock(captures().mutex);
  const std::shared_ptr<Capture> capture = captures().of(*stream);
  if (capture == nullptr || !capture->valid) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<Node*>& last = capture->last[stream.get()];
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) last.clear();
  for (std::size_t each = 0; each < count; ++each)
    last.push_back(reinterpret_cast<Node*>(nodes[each]));
  return CUDA_SUCCESS;
}

// The versions of CUDA 12.0, without data of edges.
#undef cuStreamUpdateCaptureDependencies
extern "C" __attribute__((visibility("default"))) CUresult cuStreamUpdateCaptureDependencies(
    CUstream stream, CUgraphNode* nodes, std::size_t count, unsigned flags) {
  return cuStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags);
}
extern "C" __attribute__((visibility("default"))) CUresult cuStreamGetCaptureInfo_v2(
    CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
    const CUgraphNode** last, std::size_t* count) {
  return cuStreamGetCaptureInfo(stream, status, id, graph, last, nullptr, count);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  const auto& all = graph_of(graph)->nodes;
  if (nodes != nullptr)
    for (std::size_t each = 0; each < *count && each < all.size(); ++each)
      nodes[each] = reinterpret_cast<CUgraphNode>(all[each].get());
  *count = all.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  *type = reinterpret_cast<Node*>(node)->type;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  *exec = reinterpret_cast<CUgraphExec>(new Exec(std::make_shared<GraphExec>(*graph_of(graph))));
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  const Exec exec = *exec_of(handle);
  exec->begin();
  return submit(stream, CU_GRAPH_NODE_TYPE_GRAPH, [exec] { exec->run(); });
}

// Launches that are under way keep it.
CUresult cuGraphExecDestroy(CUgraphExec handle) {
  delete exec_of(handle);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  delete graph_of(handle);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned count,
                            unsigned flags) {
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || count == 0 || destroy == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *object = reinterpret_cast<CUuserObject>(new UserObject{pointer, destroy, count});
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
  object_of(object)->references += count;
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  release(object_of(object), count);
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                 unsigned flags) {
  const std::lock_guard lock(captures().mutex);
  graph_of(graph)->kept[object_of(object)] += count;
  if (flags != CU_GRAPH_USER_OBJECT_MOVE) object_of(object)->references += count;
  return CUDA_SUCCESS;
}
