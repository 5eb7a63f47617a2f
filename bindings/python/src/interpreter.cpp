#include "interpreter.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tutti::python {
namespace {

std::atomic<bool> ending{false};
std::atomic<std::thread::id> ender{};  // written before `ending`
std::atomic<bool> after_exception{false};
std::atomic<int> inside{0};  // threads that hold the lock, or ask for it

// Counts this thread, unless the interpreter ends in another one. Both sides write before they
// read, in one order that all threads see: either await_threads() sees this thread, or this thread
// sees that the interpreter ends.
bool enter() noexcept {
  inside.fetch_add(1, std::memory_order_seq_cst);
  if (!ending.load(std::memory_order_seq_cst) || ender.load() == std::this_thread::get_id())
    return true;
  inside.fetch_sub(1, std::memory_order_seq_cst);
  return false;
}

void leave() noexcept { inside.fetch_sub(1, std::memory_order_seq_cst); }

}  // namespace

Locked::Locked() noexcept {
  if (Py_IsInitialized() == 0) return;
  const bool has_it = PyGILState_Check() == 1;
  counted_ = !has_it && enter();
  held_ = has_it || counted_;
  if (held_) before_ = PyGILState_Ensure();
}

Locked::~Locked() {
  // A thread that await_threads() has not waited for: the interpreter takes its lock away, and ends
  // the thread by unwinding the stack, which must not go on from here. Late in its end, the
  // interpreter no longer knows who has the lock, and PyGILState_Check() returns 1.
  if (held_ && ending.load() && ender.load() != std::this_thread::get_id() &&
      (Py_IsInitialized() == 0 || PyGILState_Check() != 1))
    for (;;) pause();
  if (held_) PyGILState_Release(before_);
  if (counted_) leave();
}

Unlocked::~Unlocked() {
  while (!enter()) pause();
  PyEval_RestoreThread(thread_);
  leave();
}

void await_threads() noexcept {
  constexpr std::chrono::seconds kLongest{2};
  ender = std::this_thread::get_id();
  const PyObject* const last = PySys_GetObject("last_type");  // of the exception that was printed
  after_exception = last != nullptr && last != Py_None;
  ending.store(true, std::memory_order_seq_cst);
  PyThreadState* const thread = PyEval_SaveThread();
  const auto until = std::chrono::steady_clock::now() + kLongest;
  while (inside.load(std::memory_order_seq_cst) > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(thread);
}

bool ends_after_exception() noexcept { return after_exception; }

}  // namespace tutti::python
