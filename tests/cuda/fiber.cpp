#include "tests/cuda/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// The sanitizers' functions, which are there if the program was built with one.
extern "C" {
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char* file, int line);
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack_save,
                                                          const void* bottom, std::size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack_save,
                                                           const void** bottom_old,
                                                           std::size_t* size_old);
#if defined(__x86_64__)
/// Saves the registers that a function must keep, stores the stack pointer to `*save`, and goes on
/// from the stack `to`, where another call has saved its own.
void stand_in_switch_stack(void** save, void* to);
/// Where a new stack begins: calls the function in r12 with the argument in rbx.
void stand_in_begin();
#endif
}

#if defined(__x86_64__)
asm(R"(
  .text
  .hidden stand_in_switch_stack
  .globl stand_in_switch_stack
  .type stand_in_switch_stack, @function
stand_in_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size stand_in_switch_stack, .-stand_in_switch_stack
  .hidden stand_in_begin
  .globl stand_in_begin
  .type stand_in_begin, @function
stand_in_begin:
  movq %rbx, %rdi
  call *%r12
  ud2
  .size stand_in_begin, .-stand_in_begin
)");
#endif

namespace tutti::stand_in {
namespace {

// A switch alone orders nothing: the threads of a block meet only where the kernel says so.
constexpr unsigned kNoOrder = 1;

// A stack with a page that faults is two mappings, of which a process may have 65 530
// (vm.max_map_count). Stacks without such a page become one mapping with their neighbours.
constexpr int kMostGuarded = 16384;
std::atomic<int> guarded{0};

}  // namespace

void release(void* p) {
  if (__tsan_release != nullptr) __tsan_release(p);
}
void acquire(void* p) {
  if (__tsan_acquire != nullptr) __tsan_acquire(p);
}

Unwatched::Unwatched() {
  if (AnnotateIgnoreReadsBegin != nullptr) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  if (AnnotateIgnoreWritesBegin != nullptr) AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
Unwatched::~Unwatched() {
  if (AnnotateIgnoreWritesEnd != nullptr) AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  if (AnnotateIgnoreReadsEnd != nullptr) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

Fiber::Fiber() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED ||
      (guarded++ < kMostGuarded && mprotect(memory, page, PROT_NONE) != 0)) {
    std::perror("stand-in: the stack of a thread");
    std::abort();
  }
  memory_ = static_cast<std::byte*>(memory);
  if (__tsan_create_fiber != nullptr) race_detector_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  if (race_detector_ != nullptr) __tsan_destroy_fiber(race_detector_);
  munmap(memory_, kStackBytes);
  guarded--;
}

void Fiber::enter(Fiber* self) {
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(nullptr, &self->outside_bottom_, &self->outside_bytes_);
  self->function_(self->argument_);
  self->finish();
}

#if defined(__x86_64__)
// The new stack looks as though stand_in_begin() had called stand_in_switch_stack(). Before it
// calls on, the stack is aligned to 16 bytes.
void Fiber::prepare_stack() {
  // Stacks that all begin at the same place of a page would share a few lines of the cache.
  const std::size_t begin = reinterpret_cast<std::uintptr_t>(memory_) / kStackBytes % 61 * 320;
  auto* top = reinterpret_cast<std::uint64_t*>(memory_ + kStackBytes - begin) - 2;
  const auto push = [&](std::uint64_t value) { *--top = value; };
  push(reinterpret_cast<std::uint64_t>(&stand_in_begin));
  push(0);                                        // rbp
  push(reinterpret_cast<std::uint64_t>(this));    // rbx
  push(reinterpret_cast<std::uint64_t>(&enter));  // r12
  for (int each = 13; each <= 15; ++each) push(0);
  inside_ = top;
}
#else
void Fiber::prepare_stack() {
  getcontext(&inside_);
  inside_.uc_stack = {.ss_sp = memory_, .ss_flags = 0, .ss_size = kStackBytes};
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
    enter(reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low));
  }),
              2, static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}
#endif

void Fiber::start(void (*function)(void*), void* argument) {
  function_ = function;
  argument_ = argument;
  fake_stack_ = nullptr;
  prepare_stack();
}

void Fiber::resume() {
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(&fake_stack_outside_, memory_, kStackBytes);
  if (race_detector_ != nullptr) {
    race_detector_outside_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(race_detector_, kNoOrder);
  }
#if defined(__x86_64__)
  stand_in_switch_stack(&outside_, inside_);
#else
  swapcontext(&outside_, &inside_);
#endif
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(fake_stack_outside_, nullptr, nullptr);
}

void Fiber::leave(bool forever) {
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(forever ? nullptr : &fake_stack_, outside_bottom_,
                                   outside_bytes_);
  if (race_detector_ != nullptr) __tsan_switch_to_fiber(race_detector_outside_, kNoOrder);
#if defined(__x86_64__)
  stand_in_switch_stack(&inside_, outside_);
#else
  swapcontext(&inside_, &outside_);
#endif
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(fake_stack_, &outside_bottom_, &outside_bytes_);
}

void Fiber::finish() {
  leave(true);
  std::abort();  // A fiber that has ended is never resumed.
}

}  // namespace tutti::stand_in
