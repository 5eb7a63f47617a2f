// The lock of Python's interpreter, taken and released by threads that may outlive the interpreter.
//
// A thread that asks for the lock while the interpreter ends never gets it: up to version 3.13 the
// interpreter ends such a thread by unwinding its stack, which ends the whole process where it
// meets a function that throws nothing. So the end is announced first: await_threads() runs before
// the interpreter ends, and from then on no other thread asks for the lock.
#pragma once

#include <Python.h>

#include <memory>
#include <utility>

namespace tutti::python {

/// Holds the interpreter's lock for as long as the object exists, unless the interpreter ends or
/// has ended. Any thread may make one, whether it holds the lock or not.
class Locked {
 public:
  Locked() noexcept;
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  /// Whether the lock is held. Python must not be called otherwise.
  explicit operator bool() const noexcept { return held_; }

 private:
  bool counted_ = false, held_ = false;
  PyGILState_STATE before_{};
};

/// Gives up the interpreter's lock, which the calling thread holds, for as long as the object
/// exists. If the interpreter ends meanwhile, the destructor does not return, except in the thread
/// that ends it: the other threads that are left are daemon threads, for which there is no Python
/// to return to.
class Unlocked {
 public:
  Unlocked() noexcept : thread_(PyEval_SaveThread()) {}
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const thread_;
};

/// Moves `held`, which holds objects of Python, to a shared pointer that any thread may drop: the
/// interpreter's lock is taken for it.
template <typename Held>
std::shared_ptr<Held> shared(Held held) {
  return {new Held(std::move(held)), [](Held* last) {
            const Locked lock;
            if (lock) delete last;  // otherwise the object is leaked
          }};
}

/// Announces the end of the interpreter, and waits for threads that hold its lock or are about to,
/// for two seconds at most. Called once, by the thread that ends the interpreter, which holds the
/// lock.
void await_threads() noexcept;

/// Returns whether the interpreter ends after an exception that nobody has caught. SystemExit is
/// none.
bool ends_after_exception() noexcept;

}  // namespace tutti::python
