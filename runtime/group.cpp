#include "runtime/group.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/calling.h"
#include "runtime/communicator_impl.h"

namespace tutti {

Group::Group() : calls_(std::make_unique<Calls>()) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

void Group::end() { calls_->end(); }
Work Group::end_async() { return calls_->end_async(); }
std::vector<Work> Group::start() { return calls_->start(); }

void refuse_in_group(const Group* group) {
  if (group != nullptr)
    throw Error(ErrorKind::usage,
                "an asynchronous call, or one that makes a persistent one, names a group: make the "
                "blocking call there, or Persistent::add_to(), which return at once, and take the "
                "Work of Group::end_async()");
}

// Throws if the communicator of a call has been destroyed, and with it what the call points to.
void Group::Calls::refuse_destroyed() {
  if (std::all_of(calls.begin(), calls.end(), [](const auto& each) { return each->owner_lives(); }))
    return;
  const std::size_t dropped = std::exchange(calls, {}).size();
  throw Error(ErrorKind::usage,
              fmt::format("a group ends after a communicator of one of its {} calls was destroyed: "
                          "none of them was made, and the group is empty again; end groups first",
                          dropped));
}

/// Marks this thread as being in a call of each communicator of the group's calls, see Calling.
class Group::Calls::Marks {
 public:
  explicit Marks(Calls& group) : marked_(group.marked_) {
    assert(marked_.empty());
    try {
      for (const OperationRef& call : group.calls) mark(*call);
    } catch (...) {
      unmark_all();
      throw;
    }
  }
  ~Marks() { unmark_all(); }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

 private:
  void mark(const Operation& call) {
    if (std::find(marked_.begin(), marked_.end(), call.owner) != marked_.end()) return;
    marked_.reserve(marked_.size() + 1);
    if (call.is_transfer() ? Calling::mark(*call.owner, call.transfer.call.direction)
                           : Calling::mark(*call.owner, call.call.key.signature.what))
      marked_.push_back(call.owner);
  }
  void unmark_all() noexcept {
    for (CommunicatorImpl* each : marked_) Calling::unmark(*each);
    marked_.clear();
  }

  std::vector<CommunicatorImpl*>& marked_;
};

// Sends and receives of one communicator with nothing pending need no other thread, so the caller
// moves them itself. Throws `usage` in a callback.
bool Group::Calls::can_run_here() const {
  CommunicatorImpl* owner = calls.front()->owner;
  return !owner->queue().others_first() &&
         std::all_of(calls.begin(), calls.end(), [&](const auto& each) {
           return each->is_transfer() && !each->staged() && each->owner == owner;
         });
}

void Group::Calls::run_here() {
  assert(started_.empty() && !calls.empty());
  started_.swap(calls);
  transfers_.clear();
  for (const OperationRef& each : started_) transfers_.push_back(&each->transfer);
  started_.front()->owner->transfer_here(transfers_);
}

// Empties the group, and prepares its calls, before anything has begun that would have to end.
void Group::Calls::take() {
  assert(started_.empty() && !calls.empty());
  started_.swap(calls);
  CommunicatorImpl::stage(started_);
}

// Advances all calls in turn for a number of polls; after that, waits for one call after the other,
// while the background threads advance the rest. In a runtime without threads, no other rank makes
// progress while this thread polls.
void Group::Calls::await() {
  const Runtime& runtime = *started_.front()->owner->parts().runtime;
  const int polls = runtime.has_thread() ? 5000 : 1;
  wait(
      WaitPolicy{polls, 0, std::chrono::microseconds{0}}, runtime.clock(),
      [&] {
        bool all_done = true;
        for (const OperationRef& each : started_) {
          if (!each->done()) each->owner->driver().advance_pending();
          all_done = all_done && each->done();
        }
        return all_done;
      },
      [] {},
      [&](auto&&) {
        for (const OperationRef& each : started_)
          if (!each->done()) each->owner->driver().await_operation(*each, TimePoint::max());
        return true;
      });
}

void Group::Calls::end() {
  started_.clear();
  if (calls.empty()) return;
  refuse_destroyed();
  const Marks marks(*this);
  if (can_run_here()) return run_here();
  for (const OperationRef& each : calls) each->owner->queue().refuse_in_callback();
  take();
  CommunicatorImpl::launch(started_);
  if (started_.front()->captured) return;
  await();
  for (const OperationRef& each : started_)
    if (each->error()) throw *each->error();
}

Work Group::Calls::end_async() {
  started_.clear();
  if (calls.empty()) return {};
  refuse_destroyed();
  const Marks marks(*this);
  take();
  if (started_.front()->captured) {
    CommunicatorImpl::launch(started_);
    return {};
  }
  const OperationRef all = started_.front()->owner->queue().operation_of_group();
  all->await_parts(static_cast<int>(started_.size()));
  try {
    CommunicatorImpl::launch(started_);
  } catch (...) {  // None has begun. Nobody has the Work, but the communicator waits for its end.
    for (std::size_t part = 0; part < started_.size(); ++part) all->part_ended(nullptr);
    throw;
  }
  for (const OperationRef& each : started_)
    each->then([operation = all.get()](const Error* error) { operation->part_ended(error); });
  return CommunicatorImpl::work_of(all);
}

std::vector<Work> Group::Calls::start() {
  started_.clear();
  if (calls.empty()) return {};
  refuse_destroyed();
  const Marks marks(*this);
  std::vector<Work> works;
  works.reserve(calls.size());
  take();
  CommunicatorImpl::launch(started_);
  if (!started_.front()->captured)
    for (const OperationRef& each : started_) works.push_back(CommunicatorImpl::work_of(each));
  return works;
}

}  // namespace tutti
