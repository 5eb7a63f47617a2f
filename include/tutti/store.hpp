// tutti: the key-value store through which ranks find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <tutti/export.hpp>

namespace tutti {

/// A small key-value store shared by all ranks of a job, alive as long as the job.
///
/// Keys are any bytes up to 1 KiB, values any bytes up to 1 MiB. Thread-safe. Every call ends by
/// its deadline: errors are `timeout` (the key never came; the message names it), `peer_lost` (the
/// store's host is gone) and `usage` (a key or value too large, or add() on a value that is not a
/// number).
class TUTTI_API Store {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~Store() = default;

  /// Writes `value` under `key`, over what was there.
  virtual void set(std::string_view key, std::string_view value, Deadline deadline) = 0;

  /// The value under `key`; waits until there is one.
  virtual std::string get(std::string_view key, Deadline deadline) = 0;

  /// Adds `amount` to the decimal number under `key` (0 where there is none) and returns the sum.
  /// Atomic among ranks.
  virtual std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) = 0;

  /// Returns when `key` has a value.
  virtual void wait(std::string_view key, Deadline deadline) = 0;
};

}  // namespace tutti
