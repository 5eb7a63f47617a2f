// Atomics whose operations ask the controller of the calling thread first (controller.h), and go
// straight to the standard library where there is none.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/interleaving/controller.h"

namespace tutti::sync {
namespace detail {

template <typename T>
std::uint64_t bits_of(const T& value) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <typename T>
T value_of(std::uint64_t bits) noexcept {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &bits, sizeof bytes);
  return std::bit_cast<T>(bytes);
}

constexpr std::memory_order order_of_failure(std::memory_order success) noexcept {
  if (success == std::memory_order_acq_rel) return std::memory_order_acquire;
  if (success == std::memory_order_release) return std::memory_order_relaxed;
  return success;
}

// The operations of an atomic `a`, which is a std::atomic<T>& or a std::atomic_ref<T>, at
// `address`.

template <typename T, typename Std>
T load(const Std& a, const void* address, std::memory_order order) noexcept {
  Controller* const c = controller();
  if (c == nullptr) return a.load(order);
  c->point(Kind::load, address, order);
  return value_of<T>(c->load(address, bits_of(a.load(order)), order));
}

template <typename T, typename Std>
void store(Std& a, const void* address, T value, std::memory_order order) noexcept {
  Controller* const c = controller();
  if (c == nullptr) return a.store(value, order);
  c->point(Kind::store, address, order);
  const std::uint64_t before = bits_of(a.load(std::memory_order_relaxed));
  a.store(value, order);
  c->stored(address, before, bits_of(value), order);
}

// `operation(a)` returns the value before it; `after(before)` is the value that it leaves.
template <typename T, typename Std, typename Operation, typename After>
T modify(Kind kind, Std& a, const void* address, std::memory_order order, Operation&& operation,
         After&& after) noexcept {
  Controller* const c = controller();
  if (c == nullptr) return operation(a);
  c->point(kind, address, order);
  const T before = operation(a);
  c->read_modify_write(kind, address, bits_of(before), bits_of<T>(after(before)), order);
  return before;
}

template <typename T, typename Std>
bool compare_exchange(Std& a, const void* address, T& expected, T desired,
                      std::memory_order success, std::memory_order failure) noexcept {
  Controller* const c = controller();
  if (c == nullptr) return a.compare_exchange_strong(expected, desired, success, failure);
  c->point(Kind::compare_exchange, address, success);
  T latest = expected;
  if (a.compare_exchange_strong(latest, desired, success, failure)) {
    c->read_modify_write(Kind::compare_exchange, address, bits_of(expected), bits_of(desired),
                         success);
    return true;
  }
  const std::uint64_t seen = c->load(address, bits_of(latest), failure);
  if (seen != bits_of(expected)) latest = value_of<T>(seen);
  expected = latest;
  return false;
}

}  // namespace detail

/// A std::atomic<T> of at most 8 bytes, of the same size and layout, whose operations go through
/// the controller.
template <typename T>
class Atomic {
 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = std::atomic<T>::is_always_lock_free;

  constexpr Atomic() noexcept : Atomic(T()) {}
  constexpr Atomic(T value) noexcept : a_(value) {
    if (!std::is_constant_evaluated())
      if (Controller* const c = controller()) c->created(this, detail::bits_of(value));
  }
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  bool is_lock_free() const noexcept { return a_.is_lock_free(); }

  T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
    return detail::load<T>(a_, this, order);
  }
  operator T() const noexcept { return load(); }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    detail::store<T>(a_, this, value, order);
  }
  T operator=(T value) noexcept {
    store(value);
    return value;
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return detail::modify<T>(
        Kind::exchange, a_, this, order, [&](auto& a) { return a.exchange(value, order); },
        [&](T) { return value; });
  }

  /// Never fails spuriously, so that a run can be repeated.
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             std::memory_order failure) noexcept {
    return detail::compare_exchange<T>(a_, this, expected, desired, success, failure);
  }
  bool compare_exchange_weak(T& expected, T desired,
                             std::memory_order order = std::memory_order_seq_cst) noexcept {
    return compare_exchange_weak(expected, desired, order, detail::order_of_failure(order));
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order success,
                               std::memory_order failure) noexcept {
    return compare_exchange_weak(expected, desired, success, failure);
  }
  bool compare_exchange_strong(T& expected, T desired,
                               std::memory_order order = std::memory_order_seq_cst) noexcept {
    return compare_exchange_weak(expected, desired, order);
  }

  T fetch_add(T by, std::memory_order order =
                        std::memory_order_seq_cst) noexcept requires std::integral<T> {
    return detail::modify<T>(
        Kind::fetch_add, a_, this, order, [&](auto& a) { return a.fetch_add(by, order); },
        [&](T before) { return static_cast<T>(before + by); });
  }
  T fetch_sub(T by, std::memory_order order =
                        std::memory_order_seq_cst) noexcept requires std::integral<T> {
    return detail::modify<T>(
        Kind::fetch_sub, a_, this, order, [&](auto& a) { return a.fetch_sub(by, order); },
        [&](T before) { return static_cast<T>(before - by); });
  }
  T fetch_and(T bits, std::memory_order order =
                          std::memory_order_seq_cst) noexcept requires std::integral<T> {
    return detail::modify<T>(
        Kind::fetch_and, a_, this, order, [&](auto& a) { return a.fetch_and(bits, order); },
        [&](T before) { return static_cast<T>(before & bits); });
  }
  T fetch_or(T bits, std::memory_order order =
                         std::memory_order_seq_cst) noexcept requires std::integral<T> {
    return detail::modify<T>(
        Kind::fetch_or, a_, this, order, [&](auto& a) { return a.fetch_or(bits, order); },
        [&](T before) { return static_cast<T>(before | bits); });
  }
  T fetch_xor(T bits, std::memory_order order =
                          std::memory_order_seq_cst) noexcept requires std::integral<T> {
    return detail::modify<T>(
        Kind::fetch_xor, a_, this, order, [&](auto& a) { return a.fetch_xor(bits, order); },
        [&](T before) { return static_cast<T>(before ^ bits); });
  }
  T operator++() noexcept requires std::integral<T> { return static_cast<T>(fetch_add(1) + 1); }
  T operator--() noexcept requires std::integral<T> { return static_cast<T>(fetch_sub(1) - 1); }
  T operator++(int) noexcept requires std::integral<T> { return fetch_add(1); }
  T operator--(int) noexcept requires std::integral<T> { return fetch_sub(1); }
  T operator+=(T by) noexcept requires std::integral<T> {
    return static_cast<T>(fetch_add(by) + by);
  }
  T operator-=(T by) noexcept requires std::integral<T> {
    return static_cast<T>(fetch_sub(by) - by);
  }

  /// Under a controller only a notification by a known thread ends a wait, so that one which is
  /// missing is found.
  void wait(T old, std::memory_order order = std::memory_order_seq_cst) const noexcept {
    Controller* const c = controller();
    if (c == nullptr) return a_.wait(old, order);
    while (detail::bits_of(load(order)) == detail::bits_of(old))
      if (detail::bits_of(a_.load(std::memory_order_relaxed)) == detail::bits_of(old))
        c->block(Kind::atomic_wait, this);
  }
  void notify_one() noexcept { notify(false); }
  void notify_all() noexcept { notify(true); }

 private:
  void notify(bool all) noexcept {
    if (Controller* const c = controller()) {
      c->point(Kind::atomic_notify, this, std::memory_order_relaxed);
      c->wake(Kind::atomic_wait, this, all);
    }
    if (all)
      a_.notify_all();
    else
      a_.notify_one();
  }

  std::atomic<T> a_;
};

/// Atomic operations on a word that is not an Atomic: one of many that are copied one after the
/// other. Other threads may go on at the first word of each cache line, and not at each word.
template <typename T>
class AtomicRef {
 public:
  explicit AtomicRef(T& word) noexcept : a_(word), address_(&word) {}
  T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
    Controller* const c = controller();
    if (c == nullptr) return a_.load(order);
    if (begins_line()) c->point(Kind::load, address_, order);
    return detail::value_of<T>(c->load(address_, detail::bits_of(a_.load(order)), order));
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) const noexcept {
    Controller* const c = controller();
    if (c == nullptr) return a_.store(value, order);
    if (begins_line()) c->point(Kind::store, address_, order);
    const std::uint64_t before = detail::bits_of(a_.load(std::memory_order_relaxed));
    a_.store(value, order);
    c->stored(address_, before, detail::bits_of(value), order);
  }

 private:
  bool begins_line() const noexcept {
    constexpr std::uintptr_t kLine = 64;
    return reinterpret_cast<std::uintptr_t>(address_) % kLine == 0;
  }

  std::atomic_ref<T> a_;
  const void* address_;
};

}  // namespace tutti::sync
