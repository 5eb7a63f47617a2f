#include "runtime/engine/crew.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

namespace tutti {

Crew::~Crew() {
  stop();
  quit_ = true;
  for (const auto& member : members_) {
    if (!member->thread.joinable()) continue;
    member->calls.fetch_add(1, std::memory_order_release);
    member->calls.notify_one();
    member->thread.join();
  }
}

void Crew::start(BoundProgram& bound, const CallBuffers& buffers, std::uint32_t operation,
                 ResultStores stores, bool in_threads) {
  busy_ = bound.others.size();
  while (members_.size() < busy_) members_.push_back(std::make_unique<Member>());
  in_threads_ = in_threads && hire();
  CallBuffers own = buffers;
  for (std::size_t k = 0; k < busy_; ++k) {
    Member& member = *members_[k];
    if (own.scratch != nullptr) own.scratch += bound.program.scratch_bytes;
    member.execution.start(*bound.others[k], own, operation, stores);
    member.through.store(false, std::memory_order_relaxed);
    if (!in_threads_) continue;
    member.calls.fetch_add(1, std::memory_order_release);
    member.calls.notify_one();
  }
}

// False: not all of them can have threads.
bool Crew::hire() {
  try {
    for (std::size_t k = 0; k < busy_; ++k)
      if (Member& member = *members_[k]; !member.thread.joinable())
        member.thread = std::thread([this, &member] { live(member); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

bool Crew::advance() {
  bool all = true;
  for (std::size_t k = 0; k < busy_; ++k) {
    Member& member = *members_[k];
    if (!in_threads_ && !member.through.load(std::memory_order_relaxed) &&
        member.execution.advance())
      member.through.store(true, std::memory_order_relaxed);
    if (!member.through.load(std::memory_order_acquire))
      all = false;
    else if (member.thrown != nullptr)
      std::rethrow_exception(std::exchange(member.thrown, nullptr));
  }
  if (all) busy_ = 0;
  return all;
}

void Crew::stop() noexcept {
  stop_.store(true, std::memory_order_relaxed);
  for (std::size_t k = 0; in_threads_ && k < busy_; ++k)
    while (!members_[k]->through.load(std::memory_order_acquire)) sched_yield();
  for (const auto& member : members_) member->thrown = nullptr;
  stop_.store(false, std::memory_order_relaxed);
  busy_ = 0;
}

void Crew::forget() noexcept {
  busy_ = 0;
  for (const auto& member : members_) new (&member->thread) std::thread;
}

void Crew::live(Member& member) noexcept {
  for (std::uint32_t seen = 0;;) {
    member.calls.wait(seen, std::memory_order_acquire);
    seen = member.calls.load(std::memory_order_acquire);
    if (quit_) return;
    work(member);
    member.through.store(true, std::memory_order_seq_cst);
    done_();
  }
}

// Nobody rings for a member alone: one whose peers are late naps, ever longer.
void Crew::work(Member& member) noexcept {
  constexpr int kAttempts = 20'000;
  constexpr std::chrono::microseconds kShortest{50}, kLongest{1000};
  try {
    auto nap = kShortest;
    while (!stop_.load(std::memory_order_relaxed)) {
      for (int attempt = 0; attempt < kAttempts; ++attempt) {
        if (member.execution.advance()) return;
        if (attempt % 64 == 63) sched_yield();
      }
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, kLongest);
    }
  } catch (...) {
    member.thrown = std::current_exception();
  }
}

}  // namespace tutti
