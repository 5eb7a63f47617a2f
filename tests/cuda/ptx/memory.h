// Loads, stores, atomic operations, fences and addresses.
#pragma once

#include <chrono>
#include <cstdio>

#include "tests/cuda/kernel.h"
#include "tests/cuda/ptx/arithmetic.h"

namespace tutti::stand_in::ptx {

using DeviceFunction = void (*)(Thread&, std::byte* const* results, std::byte* const* arguments);

enum class Order { relaxed, acquire, release, acq_rel, seq_cst };

constexpr int of_host(Order order) {
  switch (order) {
    case Order::acquire: return __ATOMIC_ACQUIRE;
    case Order::release: return __ATOMIC_RELEASE;
    case Order::acq_rel: return __ATOMIC_ACQ_REL;
    case Order::seq_cst: return __ATOMIC_SEQ_CST;
    default: return __ATOMIC_RELAXED;
  }
}

/// Shared memory has addresses from 0 on, in registers of 32 or 64 bits.
inline u64 in_shared(Thread& self, u64 offset) { return address(self.shared) + u32(offset); }
inline u64 to_shared(Thread& self, u64 generic) { return generic - address(self.shared); }
inline bool in_space(Thread& self, u64 generic) {
  return generic - address(self.shared) < u64{self.static_shared} + self.dynamic_shared;
}

inline u64 aligned(Thread& self, u64 address, u64 bytes) {
  if (address % bytes != 0) self.fail("a misaligned address");
  return address;
}

template <typename T>
T& word(u64 address) {
  return *reinterpret_cast<T*>(address);
}
/// A plain access.
template <typename T>
T& at(Thread& self, u64 address) {
  if (address % sizeof(T) != 0) self.fail("a misaligned address");
  return word<T>(address);
}

#ifdef TUTTI_COUNT_BYTES
/// Counts the bytes that plain accesses of several elements have moved outside shared memory.
inline u64 moved_bytes = 0;
extern "C" inline __attribute__((used, visibility("default"))) u64 take_moved_bytes() {
  return __atomic_exchange_n(&moved_bytes, 0, __ATOMIC_RELAXED);
}
#endif

/// Accesses one element of a plain access of several.
template <typename T>
T& wide([[maybe_unused]] Thread& self, u64 address) {
#ifdef TUTTI_COUNT_BYTES
  if (!in_space(self, address)) __atomic_fetch_add(&moved_bytes, sizeof(T), __ATOMIC_RELAXED);
#endif
  return word<T>(address);
}

template <typename T, Order order>
T load(Thread& self, u64 address) {
  using Bits = Unsigned<sizeof(T)>;
  auto* const memory = reinterpret_cast<Bits*>(address);
  const Bits bits = __atomic_load_n(memory, of_host(order));
  self.saw(address, bits);
  return std::bit_cast<T>(bits);
}

template <typename T, Order order>
void store(Thread& self, u64 address, T value) {
  using Bits = Unsigned<sizeof(T)>;
  auto* const memory = reinterpret_cast<Bits*>(address);
  self.disturb();
  __atomic_store_n(memory, std::bit_cast<Bits>(value), of_host(order));
}

template <Order order>
void fence() {
  __atomic_thread_fence(of_host(order));
}

/// Replaces the value by function(value), and returns what it was.
template <typename T, Order order, typename Function>
T replace(Thread& self, u64 address, Function function) {
  using Bits = Unsigned<sizeof(T)>;
  auto* const memory = reinterpret_cast<Bits*>(address);
  self.disturb();
  Bits found = __atomic_load_n(memory, __ATOMIC_RELAXED);
  Bits next{};
  do {
    next = std::bit_cast<Bits>(function(std::bit_cast<T>(found)));
  } while (
      !__atomic_compare_exchange_n(memory, &found, next, false, of_host(order), __ATOMIC_RELAXED));
  if (found == next) self.saw(address, found);
  return std::bit_cast<T>(found);
}

template <typename T, Order order>
T atomic_add(Thread& self, u64 address, T value) {
  return replace<T, order>(self, address, [=](T old) { return arithmetic_add(old, value); });
}
template <typename T, Order order>
T atomic_min(Thread& self, u64 address, T value) {
  return replace<T, order>(self, address, [=](T old) { return arithmetic_min(old, value); });
}
template <typename T, Order order>
T atomic_max(Thread& self, u64 address, T value) {
  return replace<T, order>(self, address, [=](T old) { return arithmetic_max(old, value); });
}
template <typename T, Order order>
T atomic_and(Thread& self, u64 address, T value) {
  return replace<T, order>(self, address, [=](T old) { return T(old & value); });
}
template <typename T, Order order>
T atomic_or(Thread& self, u64 address, T value) {
  return replace<T, order>(self, address, [=](T old) { return T(old | value); });
}
template <typename T, Order order>
T atomic_xor(Thread& self, u64 address, T value) {
  return replace<T, order>(self, address, [=](T old) { return T(old ^ value); });
}
template <typename T, Order order>
T atomic_exch(Thread& self, u64 address, T value) {
  return replace<T, order>(self, address, [=](T) { return value; });
}
template <typename T, Order order>
T atomic_cas(Thread& self, u64 address, T expected, T value) {
  return replace<T, order>(self, address, [=](T old) { return old == expected ? value : old; });
}
template <typename T, Order order>
T atomic_inc(Thread& self, u64 address, T most) {
  return replace<T, order>(self, address, [=](T old) { return old >= most ? T(0) : T(old + 1); });
}
template <typename T, Order order>
T atomic_dec(Thread& self, u64 address, T most) {
  return replace<T, order>(self, address,
                           [=](T old) { return old == 0 || old > most ? most : T(old - 1); });
}

/// A thread that reads the clock may wait until a time.
inline u64 clock(Thread& self) {
  self.pause();
  return static_cast<u64>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// printf() in a kernel: the format, and its arguments in memory, each of them aligned to its size.
inline void print(std::byte* const* arguments, std::byte* const* results) {
  const char* format = nullptr;
  const std::byte* next = nullptr;
  std::memcpy(&format, arguments[0], sizeof format);
  std::memcpy(&next, arguments[1], sizeof next);
  int count = 0;
  while (*format != 0) {
    const std::size_t text = std::strcspn(format, "%");
    count += std::printf("%.*s", static_cast<int>(text), format);
    format += text;
    if (*format == 0) break;
    char directive[32] = {};
    const std::size_t length = std::strcspn(format + 1, "diouxXeEfFgGcsp%") + 2;
    if (length >= sizeof directive) break;
    std::memcpy(directive, format, length);
    format += length;
    const char last = directive[length - 1];
    const bool wide =
        std::strchr("eEfFgGsp", last) != nullptr || std::strchr(directive, 'l') != nullptr;
    if (last == '%') {
      count += std::printf("%%");
      continue;
    }
    u64 bits = 0;
    const std::size_t bytes = wide ? 8 : 4;
    next = reinterpret_cast<const std::byte*>((address(next) + bytes - 1) / bytes * bytes);
    std::memcpy(&bits, next, bytes);
    next += bytes;
    if (std::strchr("eEfFgG", last) != nullptr)
      count += std::printf(directive, as<double>(bits));
    else if (wide)
      count += std::printf(directive, bits);
    else
      count += std::printf(directive, static_cast<u32>(bits));
  }
  if (results[0] != nullptr) std::memcpy(results[0], &count, sizeof count);
}

[[noreturn]] inline void assertion_failed(Thread& self, std::byte* const* arguments) {
  const char* condition = nullptr;
  const char* file = nullptr;
  u32 line = 0;
  std::memcpy(&condition, arguments[0], sizeof condition);
  std::memcpy(&file, arguments[1], sizeof file);
  std::memcpy(&line, arguments[2], sizeof line);
  std::fprintf(stderr, "stand-in: %s:%u: assertion failed: %s\n", file, line, condition);
  self.fail("an assertion failed");
}

}  // namespace tutti::stand_in::ptx
