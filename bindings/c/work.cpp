// Implements asynchronous calls of the C ABI.
#include "bindings/c/work.h"

#include <cassert>
#include <utility>

#include "bindings/c/guarded.h"
#include "bindings/c/handles.h"
#include "runtime/operation.h"

namespace tutti {

struct WorkHandle {
  static Operation* release(Work& work) noexcept { return std::exchange(work.operation_, nullptr); }
  static Work adopt(Operation* operation) noexcept {
    Work work;
    work.operation_ = operation;
    return work;
  }
};

namespace c {

namespace {

constexpr std::uintptr_t kNumberBits = alignof(Operation) - 1;

struct Handle {
  Operation* operation;  ///< Null for a call that was done at once.
  std::uint32_t freed;   ///< Number of the operation's handles that have been freed.
};

Handle read(tuttiWork_t work) {
  const auto bits = reinterpret_cast<std::uintptr_t>(work);
  if (bits == 0) return {nullptr, 0};
  auto* operation = reinterpret_cast<Operation*>(bits & ~kNumberBits);
  const std::uint32_t freed = operation->handles_freed.load(std::memory_order_relaxed);
  if ((freed & kNumberBits) != (bits & kNumberBits))
    throw Error(ErrorKind::usage, "work is no such handle, or has been freed");
  return {operation, freed};
}

}  // namespace

tuttiWork_t handle(Work work) noexcept {
  Operation* operation = WorkHandle::release(work);
  if (operation == nullptr) return nullptr;
  const std::uintptr_t number = operation->handles_freed.load(std::memory_order_relaxed);
  assert((reinterpret_cast<std::uintptr_t>(operation) & kNumberBits) == 0);
  return reinterpret_cast<tuttiWork_t>(reinterpret_cast<std::uintptr_t>(operation) |
                                       (number & kNumberBits));
}

Work taken(tuttiWork_t work) {
  auto [operation, freed] = read(work);
  if (operation != nullptr) operation->handles_freed.store(freed + 1, std::memory_order_relaxed);
  return WorkHandle::adopt(operation);
}

Work held(tuttiWork_t work) {
  Work its = WorkHandle::adopt(read(work).operation);
  Work copy = its;
  WorkHandle::release(its);
  return copy;
}

}  // namespace c
}  // namespace tutti

using namespace tutti::c;
using tutti::Work;

tuttiResult_t tuttiWorkWait(tuttiWork_t work) {
  return guarded([&] { held(work).wait(); });
}

tuttiResult_t tuttiWorkWaitFor(tuttiWork_t work, int64_t limit_ms, int* done) {
  return guarded([&] {
    int& ended = result(done, "done");
    Work its = held(work);
    try {
      ended = its.wait_for(std::chrono::milliseconds(limit_ms)) ? 1 : 0;
    } catch (...) {
      ended = its.done() ? 1 : 0;
      throw;
    }
    if (ended == 0)
      throw tutti::Error(
          tutti::ErrorKind::timeout,
          "the call had not ended within limit_ms; it goes on, and can be waited for "
          "again");
  });
}

tuttiResult_t tuttiWorkTest(tuttiWork_t work, int* done) {
  return guarded([&] {
    Work its = held(work);
    result(done, "done") = its.done() ? 1 : 0;
    if (its.done()) its.wait();
  });
}

tuttiResult_t tuttiWorkThen(tuttiWork_t work, tuttiCallback_t callback, void* context) {
  return guarded([&] {
    result(callback, "callback");
    held(work).then([callback, context](const tutti::Error* error) {
      if (error == nullptr)
        callback(tuttiSuccess, "", context);
      else
        callback(static_cast<tuttiResult_t>(error->kind()), error->what(), context);
    });
  });
}

tuttiResult_t tuttiWorkFree(tuttiWork_t work) {
  return guarded([&] { taken(work); });
}
