#include "runtime/staged/captures.h"

#include <tutti/error.hpp>

#include "runtime/communicator_impl.h"

namespace tutti {
namespace {

struct CaptureInfo {
  std::uint64_t capture = 0;
  cuda::Graph graph = nullptr;
};

// Where `last` is null, the nodes that come last are not asked for: a driver refuses to name those
// that a programmatic launch has added.
CaptureInfo info_of(const cuda::Driver& driver, cuda::Stream stream,
                    const cuda::GraphNode** last = nullptr, std::size_t* count = nullptr) {
  CaptureInfo info;
  int status = 0;
  cuda::check(driver, driver.capture_info(stream, &status, &info.capture, &info.graph, last, count),
              "a stream that is captured into a CUDA graph");
  if (status != cuda::kCaptureActive)
    throw Error(ErrorKind::unavailable,
                "the capture of CallOptions::stream into a CUDA graph is invalid, because a call "
                "of the driver was made that a capture forbids: end it, and capture anew");
  return info;
}

}  // namespace

void Captures::keep(const cuda::Driver& driver, cuda::Stream stream, Operation& call) {
  const CaptureInfo info = info_of(driver, stream);
  cuda::UserObject object = nullptr;
  cuda::check(driver,
              driver.create_user_object(&object, &call, graph_ended, 1, cuda::kNoDestructorSync),
              "an object for a graph");
  call.hold();  // for the graph; graph_ended() lets go
  {
    const std::lock_guard lock(mutex_);
    calls_.emplace(&call, info.capture);
    call.hold();
    any_.store(true, std::memory_order_seq_cst);
    queue_.set_captures(true);
  }
  const cuda::Result kept = driver.retain_user_object(info.graph, object, 1, cuda::kMoveReferences);
  if (kept != cuda::kSuccess) driver.release_user_object(object, 1);
  cuda::check(driver, kept, "an object for a graph");
}

void Captures::add_start(const cuda::Driver& driver, cuda::Stream stream, cuda::HostFunction start,
                         Operation& call) {
  const std::uint64_t capture = info_of(driver, stream).capture;
  if (cuda::GraphNode before = last_start(capture); before != nullptr)
    cuda::check(driver, driver.update_dependencies(stream, &before, 1, cuda::kAddDependencies),
                "the order of calls in a graph");
  cuda::check(driver, driver.launch_host(stream, start, &call), "a host function in a graph");
  const cuda::GraphNode* last = nullptr;
  std::size_t count = 0;
  info_of(driver, stream, &last, &count);
  if (count != 1)
    throw Error(ErrorKind::internal, "a host function was captured, and is not the last node");
  const std::lock_guard lock(mutex_);
  last_starts_[capture] = *last;
}

cuda::GraphNode Captures::last_start(std::uint64_t capture) {
  const std::lock_guard lock(mutex_);
  const auto found = last_starts_.find(capture);
  return found == last_starts_.end() ? nullptr : found->second;
}

// A graph that ends is not captured any more. The program of the call belongs to the communicator,
// which may end before the graph's reference does.
void Captures::remove(Operation& call) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(&call);
  if (found == calls_.end()) return;
  last_starts_.erase(found->second);
  calls_.erase(found);
  call.call.program.reset();
  call.let_go();  // The graph has one more reference.
  if (!calls_.empty()) return;
  any_.store(false, std::memory_order_seq_cst);
  queue_.set_captures(false);
}

// It runs in a thread of the driver, which it may not call.
void Captures::graph_ended(void* call) noexcept {
  auto& ended = *static_cast<Operation*>(call);
  {
    const Operation::Waiter waiter(ended);
    if (ended.owner_lives()) ended.owner->captures().remove(ended);
  }
  ended.let_go();
}

void Captures::let_go(const CommunicatorParts& parts) noexcept {
  const std::lock_guard lock(mutex_);
  if (!calls_.empty())
    parts.runtime->log().write(
        LogLevel::info,
        "rank {} of {}: CUDA graphs hold {} calls of the communicator, which "
        "ends, unless they have been destroyed just now: a replay starts "
        "none of these calls any more",
        parts.rank, parts.size, calls_.size());
  for (const auto& [call, capture] : calls_) {
    call->call.program.reset();
    call->let_go();
  }
  calls_.clear();
}

}  // namespace tutti
