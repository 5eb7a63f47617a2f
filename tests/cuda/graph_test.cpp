// Captures of streams, and graphs.
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "tests/cuda/launch.h"

// The versions of CUDA 12.0, by which the library calls them.
#undef cuStreamUpdateCaptureDependencies
extern "C" CUresult cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode*, std::size_t,
                                                      unsigned);
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                              CUgraph*, const CUgraphNode**, std::size_t*);

namespace tutti::stand_in::test {
namespace {

class Graph {
 public:
  Graph() = default;
  ~Graph() {
    destroy_exec();
    destroy_graph();
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  static void begin(const Stream& stream,
                    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    check(cuStreamBeginCapture(stream.handle(), mode));
  }
  void end(const Stream& stream) {
    check(cuStreamEndCapture(stream.handle(), &graph_));
    check(cuGraphInstantiate(&exec_, graph_, 0));
  }
  void launch(const Stream& stream) const { check(cuGraphLaunch(exec_, stream.handle())); }
  void destroy_graph() {
    if (graph_ != nullptr) check(cuGraphDestroy(std::exchange(graph_, nullptr)));
  }
  void destroy_exec() {
    if (exec_ != nullptr) check(cuGraphExecDestroy(std::exchange(exec_, nullptr)));
  }
  std::size_t nodes() const {
    std::size_t count = 0;
    check(cuGraphGetNodes(graph_, nullptr, &count));
    return count;
  }

 private:
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

class Event {
 public:
  Event() { check(cuEventCreate(&handle_, CU_EVENT_DISABLE_TIMING)); }
  ~Event() { check(cuEventDestroy(handle_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  CUevent handle() const { return handle_; }

 private:
  CUevent handle_ = nullptr;
};

void add_digit(const Stream& stream, const Pinned& word, Wide digit) {
  struct Digit {
    std::atomic<Wide>* word;
    Wide digit;
  };
  static std::vector<std::unique_ptr<Digit>> digits;
  digits.push_back(std::make_unique<Digit>(Digit{&word.word(), digit}));
  check(cuLaunchHostFunc(
      stream.handle(),
      [](void* argument) {
        const Digit& added = *static_cast<Digit*>(argument);
        *added.word = added.word->load() * 10 + added.digit;
      },
      digits.back().get()));
}

/// Returns whether a value stays for a moment, in which what should not have happened could.
template <typename Value>
bool stays(const std::atomic<Value>& value, Value expected) {
  for (int look = 0; look < 20000; ++look) {
    if (value != expected) return false;
    std::this_thread::yield();
  }
  return true;
}

// Orders what comes next on `behind` after what is on `before`.
void follow(const Stream& behind, const Stream& before, const Event& event) {
  check(cuEventRecord(event.handle(), before.handle()));
  check(cuStreamWaitEvent(behind.handle(), event.handle(), 0));
}

TEST(Graphs, WhatIsCapturedRunsInItsOrderAtEachLaunchAndNotBefore) {
  const Gpu gpu;
  const Stream stream;
  const Pinned word;
  const Array<Wide> values(100, 1);
  Graph graph;
  Graph::begin(stream);
  gpu.launch("multiply_all", {1, 64, 0, stream.handle()}, values.address(), Wide{100}, Wide{3});
  add_digit(stream, word, 1);
  add_digit(stream, word, 2);
  graph.end(stream);
  EXPECT_EQ(graph.nodes(), 3U);
  stream.synchronize();
  EXPECT_EQ(word.word(), 0U);
  for (int launch = 0; launch < 3; ++launch) graph.launch(stream);
  graph.destroy_graph();
  graph.destroy_exec();
  stream.synchronize();
  EXPECT_EQ(word.word(), 121212U);
  EXPECT_EQ(values.get(), std::vector<Wide>(100, 27));
}

TEST(Graphs, ForkedStreamsRunSideBySideAndAreJoined) {
  const Gpu gpu;
  const Stream first, second;
  const Pinned go, word;
  const Event fork, join;
  Graph graph;
  Graph::begin(first);
  follow(second, first, fork);
  check(cuStreamWaitValue32(first.handle(), go.address(), 1, 0));
  check(cuStreamWriteValue32(second.handle(), go.address(), 1, 0));
  check(cuEventRecord(join.handle(), second.handle()));
  check(cuStreamWaitEvent(first.handle(), join.handle(), 0));
  add_digit(first, word, 7);
  graph.end(first);
  graph.launch(first);
  first.synchronize();
  EXPECT_EQ(word.word(), 7U);
}

TEST(Graphs, AForkThatIsNotJoinedIsAnErrorAtTheEnd) {
  const Gpu gpu;
  const Stream first, second;
  const Pinned word;
  const Event fork;
  Graph::begin(first);
  add_digit(first, word, 1);
  follow(second, first, fork);
  add_digit(second, word, 1);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(second.handle(), &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(cuStreamEndCapture(first.handle(), &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
}

TEST(Graphs, ADependencyThatIsAddedOrdersTwoStreams) {
  const Gpu gpu;
  const Stream first, second;
  const Pinned go, word;
  const Event fork, join;
  Graph graph;
  Graph::begin(first);
  follow(second, first, fork);
  check(cuStreamWaitValue32(first.handle(), go.address(), 1, 0));
  add_digit(first, word, 1);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  CUgraph found = nullptr;
  const CUgraphNode* last = nullptr;
  std::size_t count = 0;
  check(cuStreamGetCaptureInfo_v2(first.handle(), &status, &number, &found, &last, &count));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(count, 1U);
  CUgraphNode node = *last;
  check(cuStreamUpdateCaptureDependencies(second.handle(), &node, 1, 0));
  add_digit(second, word, 2);
  follow(first, second, join);
  graph.end(first);
  graph.launch(first);
  EXPECT_TRUE(stays(word.word(), Wide{0}));
  go.word() = 1;
  first.synchronize();
  EXPECT_EQ(word.word(), 12U);
}

TEST(Graphs, UnsafeCallsMakeACaptureInvalidUnlessTheThreadIsRelaxed) {
  const Gpu gpu;
  const Stream stream;
  const auto allocate = [&] {
    CUdeviceptr memory = 0;
    const CUresult result = cuMemAlloc(&memory, 64);
    if (result == CUDA_SUCCESS) check(cuMemFree(memory));
    return result;
  };
  Graph::begin(stream);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  check(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  check(cuThreadExchangeStreamCaptureMode(&mode));
  CUresult elsewhere = CUDA_SUCCESS;
  std::thread([&] {
    check(cuCtxPushCurrent(gpu.context()));
    elsewhere = allocate();
  }).join();
  EXPECT_EQ(elsewhere, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream.handle(), &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Graph::begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream.handle()), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(stream.handle(), &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(Graphs, AnEventFromOutsideCannotBeWaitedFor) {
  const Gpu gpu;
  const Stream stream, other;
  const Event event;
  check(cuEventRecord(event.handle(), other.handle()));
  Graph::begin(stream);
  EXPECT_EQ(cuStreamWaitEvent(stream.handle(), event.handle(), 0),
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream.handle(), &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(Graphs, ToAskForACapturedEventMakesItsCaptureInvalidAndTheEventIsOfNoUseAfterwards) {
  const Gpu gpu;
  const Stream stream, other;
  const Pinned word;
  const Event event;
  CUgraph graph = nullptr;
  for (const auto ask : {cuEventQuery, cuEventSynchronize}) {
    Graph::begin(stream);
    add_digit(stream, word, 1);
    check(cuEventRecord(event.handle(), stream.handle()));
    EXPECT_EQ(ask(event.handle()), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(cuStreamEndCapture(stream.handle(), &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(ask(event.handle()), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(cuStreamWaitEvent(other.handle(), event.handle(), 0), CUDA_ERROR_CAPTURED_EVENT);
  }
  check(cuEventRecord(event.handle(), stream.handle()));
  check(cuStreamWaitEvent(other.handle(), event.handle(), 0));
  check(cuEventSynchronize(event.handle()));
}

TEST(Graphs, AnExternalEventIsRecordedByEachLaunchAndAnotherIsAwaited) {
  const Gpu gpu;
  const Stream stream, other;
  const Pinned go, word;
  const Event recorded, awaited;
  EXPECT_EQ(cuEventRecordWithFlags(recorded.handle(), stream.handle(), CU_EVENT_RECORD_EXTERNAL),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitEvent(stream.handle(), recorded.handle(), CU_EVENT_WAIT_EXTERNAL),
            CUDA_ERROR_INVALID_VALUE);
  Graph graph;
  Graph::begin(stream);
  check(cuStreamWaitEvent(stream.handle(), awaited.handle(), CU_EVENT_WAIT_EXTERNAL));
  add_digit(stream, word, 1);
  check(cuEventRecordWithFlags(recorded.handle(), stream.handle(), CU_EVENT_RECORD_EXTERNAL));
  graph.end(stream);
  EXPECT_EQ(cuEventQuery(recorded.handle()), CUDA_SUCCESS);
  for (const Wide digits : {1U, 11U}) {
    const Wide before = word.word();
    go.word() = 0;
    check(cuStreamWaitValue32(other.handle(), go.address(), 1, 0));
    check(cuEventRecord(awaited.handle(), other.handle()));
    graph.launch(stream);
    check(cuStreamWaitEvent(other.handle(), recorded.handle(), 0));
    EXPECT_TRUE(stays(word.word(), before));
    EXPECT_EQ(cuEventQuery(recorded.handle()), CUDA_ERROR_NOT_READY);
    go.word() = 1;
    other.synchronize();
    EXPECT_EQ(word.word(), digits);
    EXPECT_EQ(cuEventQuery(recorded.handle()), CUDA_SUCCESS);
  }
}

TEST(Graphs, AUserObjectEndsWithTheLastThatKeepsItWhereNoDriverMayBeCalled) {
  const Gpu gpu;
  const Stream stream;
  const Pinned go;
  static std::atomic<int> destroyed;
  destroyed = 0;
  CUuserObject object = nullptr;
  check(cuUserObjectCreate(
      &object, nullptr,
      [](void*) {
        CUdeviceptr memory = 0;
        destroyed = cuMemAlloc(&memory, 64);
      },
      1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  Graph graph;
  Graph::begin(stream);
  check(cuStreamWaitValue32(stream.handle(), go.address(), 1, 0));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph captured = nullptr;
  check(cuStreamGetCaptureInfo_v2(stream.handle(), &status, nullptr, &captured, nullptr, nullptr));
  check(cuGraphRetainUserObject(captured, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  graph.end(stream);
  graph.launch(stream);
  graph.destroy_graph();
  graph.destroy_exec();
  EXPECT_TRUE(stays(destroyed, 0));
  go.word() = 1;
  while (destroyed == 0) std::this_thread::yield();
  EXPECT_EQ(destroyed, CUDA_ERROR_NOT_PERMITTED);
}

}  // namespace
}  // namespace tutti::stand_in::test
