// Asynchronous calls.
#include "c/work.h"

#include <utility>

#include "c/guarded.h"
#include "c/handles.h"

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

tuttiWork_t handle(Work work) noexcept {
  return reinterpret_cast<tuttiWork_t>(WorkHandle::release(work));
}

Work taken(tuttiWork_t work) noexcept {
  return WorkHandle::adopt(reinterpret_cast<Operation*>(work));
}

Work held(tuttiWork_t work) noexcept {
  Work its = taken(work);
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
    ended = 1;
    try {
      its.wait(std::chrono::milliseconds(limit_ms));
    } catch (...) {
      ended = its.done() ? 1 : 0;
      throw;
    }
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
