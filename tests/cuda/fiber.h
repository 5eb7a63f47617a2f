// A fiber: a stack of its own, to which a host thread switches and from which it comes back.
#pragma once

#include <cstddef>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace tutti::stand_in {

/// Sanitizers are told of every switch if the process has them; this code needs no instrumentation.
/// A fiber is used by one host thread, which may be another one whenever no function runs on it.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Begins `function(argument)` at the next resume(). The function must have ended before the next
  /// start(), and it ends by finish().
  void start(void (*function)(void*), void* argument);
  /// Runs the fiber until it calls leave() or finish().
  void resume();
  /// In the fiber: goes back to resume().
  void leave() { leave(false); }
  [[noreturn]] void finish();

 private:
  static void enter(Fiber* self);
  void leave(bool forever);
  void prepare_stack();
  static constexpr std::size_t kStackBytes = 1024 * 1024;

  std::byte* memory_;  ///< A page, which faults in most fibers, and the stack above it.
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
#if defined(__x86_64__)
  void* inside_ = nullptr;   ///< The stack pointer of the fiber while it is left.
  void* outside_ = nullptr;  ///< The stack pointer of the host thread while the fiber runs.
#else
  ucontext_t inside_{}, outside_{};
#endif
  void* race_detector_ = nullptr;          ///< ThreadSanitizer's object for the fiber,
  void* race_detector_outside_ = nullptr;  ///< and for the host thread.
  void* fake_stack_ = nullptr;             ///< AddressSanitizer's.
  void* fake_stack_outside_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_bytes_ = 0;
};

/// Tells ThreadSanitizer, if it is there, that what comes before release(p) happens before what
/// comes after acquire(p).
void release(void* p);
void acquire(void* p);

/// While it lives, ThreadSanitizer takes no notice of what this thread, or this fiber, does to
/// memory. The threads of a block share what the executor keeps, in an order that it does not know.
class Unwatched {
 public:
  Unwatched();
  ~Unwatched();
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};

/// The one object of a type, which the first call makes and which outlives main(), since threads
/// do. Not instrumented, the variable would not tell ThreadSanitizer that it is made before it is
/// used.
template <typename T>
T& only() {
  static T* const made = [] {
    T* const object = new T;
    release(object);
    return object;
  }();
  acquire(made);
  return *made;
}

}  // namespace tutti::stand_in
