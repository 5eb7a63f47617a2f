// Streams, events, and what runs on streams without a kernel.
#include <chrono>
#include <thread>

#include "tests/cuda/graph.h"

using namespace tutti::stand_in;

namespace {

constexpr unsigned kFlush = CU_STREAM_WAIT_VALUE_FLUSH;

template <typename Word>
bool satisfied(Word found, Word value, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<std::make_signed_t<Word>>(found - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return found == value;
    case CU_STREAM_WAIT_VALUE_AND: return (found & value) != 0;
    default: return static_cast<Word>(~(found | value)) != 0;
  }
}

template <typename Word>
CUresult wait_value(CUstream stream, CUdeviceptr address, Word value, unsigned flags) {
  const unsigned condition = flags & ~kFlush;
  if (condition > CU_STREAM_WAIT_VALUE_NOR || address % sizeof(Word) != 0 ||
      !driver().memory.find(address))
    return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [=] {
    for (int looks = 0;
         !satisfied(__atomic_load_n(at<Word>(address), __ATOMIC_ACQUIRE), value, condition);
         ++looks) {
      if (looks < 64)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    acquire(at<void>(address));
  });
}

template <typename Word>
CUresult write_value(CUstream stream, CUdeviceptr address, Word value, unsigned flags) {
  if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER || address % sizeof(Word) != 0 ||
      !driver().memory.find(address))
    return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [=] {
    release(at<void>(address));
    __atomic_store_n(at<Word>(address), value, __ATOMIC_RELEASE);
  });
}

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Event& event_of(CUevent handle) { return *reinterpret_cast<Event*>(handle); }

// Returns an error for what may not be asked about a stream that is captured, or while it is.
CUresult check_asked(const Stream& stream) {
  {
    const std::lock_guard lock(captures().mutex);
    if (const auto capture = captures().of(stream)) {
      capture->valid = false;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return check_safe();
}

CUresult check_asked(Event& event) {
  {
    const std::lock_guard lock(captures().mutex);
    const std::lock_guard reading(event.mutex);
    if (const auto capture = event.capture.lock()) capture->valid = false;
    if (event.captured) return CUDA_ERROR_CAPTURED_EVENT;
  }
  return check_safe();
}

// An event that is recorded on a stream under capture stands for the nodes that come last there.
bool record_captured(Event& event, const Stream& stream, CUresult* result) {
  const std::lock_guard lock(captures().mutex);
  const std::shared_ptr<Capture> capture = captures().of(stream);
  const std::lock_guard writing(event.mutex);
  event.capture = capture;
  event.captured = capture != nullptr;
  *result = CUDA_SUCCESS;
  if (capture == nullptr) return false;
  if (!capture->valid) *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event.stream = nullptr;
  event.nodes = capture->last.at(&stream);
  return true;
}

bool is_captured(const Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  return captures().of(stream) != nullptr;
}

// Adds a node that records an event for what is outside the graph, at each launch.
CUresult record_outside(Event& event, CUstream handle, const Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  const CUresult result = submit(handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD, [&event] {
    const std::lock_guard writing(event.mutex);
    --event.launches;
    event.nanoseconds = now();
    event.changed.notify_all();
  });
  if (result == CUDA_SUCCESS) captures().of(stream)->graph->nodes.back()->recorded = &event;
  return result;
}

// A stream that waits for an event of a capture becomes a part of it.
bool wait_captured(Event& event, const Stream& stream, CUresult* result) {
  const std::lock_guard lock(captures().mutex);
  const std::lock_guard reading(event.mutex);
  const std::shared_ptr<Capture> capture = captures().of(stream), recorded = event.capture.lock();
  *result = capture == nullptr && recorded == nullptr && event.captured ? CUDA_ERROR_CAPTURED_EVENT
                                                                        : CUDA_SUCCESS;
  if (capture == nullptr && recorded == nullptr) return *result != CUDA_SUCCESS;
  if (capture != nullptr && !capture->valid) {
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return true;
  }
  if (capture != nullptr && capture != recorded) {
    if (recorded == nullptr && event.stream == nullptr && !event.captured)
      return true;  // It was never recorded.
    capture->valid = false;
    *result =
        recorded == nullptr ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_ERROR_STREAM_CAPTURE_MERGE;
    return true;
  }
  std::vector<Node*>& last = recorded->last[&stream];
  last.insert(last.end(), event.nodes.begin(), event.nodes.end());
  return true;
}

}  // namespace

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  CUresult refusal = CUDA_SUCCESS;
  Context* const context = current(&refusal);
  if (context == nullptr) return refusal;
  if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = static_cast<CUstream>(
      context->create_stream((flags & CU_STREAM_NON_BLOCKING) == 0, priority));
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream != nullptr) *priority = stream->priority();
  return refusal;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream != nullptr) *flags = stream->blocking() ? 0 : CU_STREAM_NON_BLOCKING;
  return refusal;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream != nullptr) *context = handle_of(&stream->context());
  return refusal;
}

CUresult cuStreamDestroy(CUstream handle) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream == nullptr) return refusal;
  return stream->context().destroy_stream(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamSynchronize(CUstream handle) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream == nullptr) return refusal;
  refusal = check_asked(*stream);
  if (refusal != CUDA_SUCCESS) return refusal;
  // What the legacy stream does includes waiting for the others.
  stream->wait(stream->context().submit(*stream, [] {}));
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream == nullptr) return refusal;
  refusal = check_asked(*stream);
  if (refusal != CUDA_SUCCESS) return refusal;
  return stream->ended(stream->pushed()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  return wait_value<std::uint32_t>(stream, address, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned flags) {
  return wait_value<std::uint64_t>(stream, address, value, flags);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags) {
  return write_value<std::uint32_t>(stream, address, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags) {
  return write_value<std::uint64_t>(stream, address, value, flags);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  return submit(stream, CU_GRAPH_NODE_TYPE_HOST, [=] {
    in_host_function() = true;
    function(argument);
    in_host_function() = false;
  });
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  CUresult refusal = CUDA_SUCCESS;
  if (current(&refusal) == nullptr) return refusal;
  const std::lock_guard lock(driver().mutex);
  *event = reinterpret_cast<CUevent>(&driver().events.emplace_back());
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent) { return CUDA_SUCCESS; }

CUresult cuEventRecord(CUevent handle, CUstream handle_of_stream) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle_of_stream, &refusal);
  if (stream == nullptr) return refusal;
  Event& event = event_of(handle);
  if (record_captured(event, *stream, &refusal)) return refusal;
  const std::uint64_t work = stream->context().submit(*stream, [&event] {
    const std::lock_guard lock(event.mutex);
    event.nanoseconds = now();
  });
  const std::lock_guard lock(event.mutex);
  event.stream = stream;
  event.work = work;
  return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream == nullptr) return refusal;
  if ((flags & CU_EVENT_RECORD_EXTERNAL) == 0) return cuEventRecord(event, handle);
  if (!is_captured(*stream)) return CUDA_ERROR_INVALID_VALUE;
  return record_outside(event_of(event), handle, *stream);
}

CUresult cuEventQuery(CUevent event) {
  const CUresult refusal = check_asked(event_of(event));
  if (refusal != CUDA_SUCCESS) return refusal;
  return event_of(event).ended() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
  const CUresult refusal = check_asked(event_of(event));
  if (refusal != CUDA_SUCCESS) return refusal;
  event_of(event).wait();
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  Event& first = event_of(begin);
  Event& last = event_of(end);
  if (!first.ended() || !last.ended()) return CUDA_ERROR_NOT_READY;
  const std::scoped_lock lock(first.mutex, last.mutex);
  *milliseconds = static_cast<float>(last.nanoseconds - first.nanoseconds) / 1e6F;
  return CUDA_SUCCESS;
}

// It waits for what has been recorded up to now, whatever is recorded later.
CUresult cuStreamWaitEvent(CUstream handle_of_stream, CUevent handle, unsigned flags) {
  CUresult result = CUDA_SUCCESS;
  const auto stream = find_stream(handle_of_stream, &result);
  if (stream == nullptr) return result;
  Event& event = event_of(handle);
  const auto wait_for_event = [&event] { event.wait(); };
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0)
    return is_captured(*stream)
               ? submit(handle_of_stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, wait_for_event)
               : CUDA_ERROR_INVALID_VALUE;
  if (wait_captured(event, *stream, &result)) return result;
  std::shared_ptr<Stream> recorded;
  std::uint64_t work = 0;
  bool launched = false;
  {
    const std::lock_guard lock(event.mutex);
    recorded = event.stream;
    work = event.work;
    launched = event.launches > 0;
  }
  if (launched) return submit(handle_of_stream, CU_GRAPH_NODE_TYPE_EMPTY, wait_for_event);
  return submit(handle_of_stream, CU_GRAPH_NODE_TYPE_EMPTY, [=] {
    if (recorded != nullptr) recorded->wait(work);
  });
}
