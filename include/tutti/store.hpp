// tutti: the key-value store through which ranks find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <tutti/export.hpp>

namespace tutti {

/// A small key-value store that all ranks of a job share and that exists as long as the job.
///
/// Keys are any bytes up to 1 KiB, values any bytes up to 1 MiB. Thread-safe. Every call ends by
/// its deadline. Its errors are `timeout` (the key had no value in time; the message names it),
/// `peer_lost` (the store's host is gone) and `usage` (a key or value is too large, or add() met a
/// value that is not a number).
class TUTTI_API Store {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~Store() = default;

  /// Writes `value` under `key` and replaces an earlier value.
  virtual void set(std::string_view key, std::string_view value, Deadline deadline) = 0;

  /// Waits until `key` has a value, and returns it.
  virtual std::string get(std::string_view key, Deadline deadline) = 0;

  /// Adds `amount` to the decimal number under `key` (0 if there is none) and returns the sum.
  /// Atomic among ranks.
  virtual std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) = 0;

  /// Waits until `key` has a value.
  virtual void wait(std::string_view key, Deadline deadline) = 0;
};

}  // namespace tutti
