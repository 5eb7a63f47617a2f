// tutti: the key-value store through which ranks find each other, and how a program serves one of
// its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/export.hpp>

namespace tutti {

struct Config;

/// Says what ends a wait at a store, with `peer_lost`, beside the value and the deadline.
struct Unless {
  std::vector<std::string> keys = {};  ///< A value under one of them, which is the error's text.
  /// Is asked a few times a second, if not null, by the thread that waits. True ends the wait, even
  /// where the value is about to come. It must not use the store, nor throw.
  std::function<bool()> given_up = nullptr;
};

/// A small key-value store that all ranks of a job share and that exists as long as the job.
///
/// Keys are any bytes up to 1 KiB, values any bytes up to 1 MiB. Thread-safe. Every call ends by
/// its deadline. Its errors are `timeout` (the key had no value in time; the message names it),
/// `peer_lost` (the store's host is gone), `usage` (a key or value is too large, or add() met a
/// value that is not a number) and `unavailable` (the store's host has no memory for the request,
/// and has done nothing).
class TUTTI_API Store {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~Store() = default;

  /// Writes `value` under `key` and replaces an earlier value.
  virtual void set(std::string_view key, std::string_view value, Deadline deadline) = 0;

  /// Waits until `key` has a value, and returns it.
  virtual std::string get(std::string_view key, Deadline deadline) = 0;

  /// Adds `amount` to the decimal number under `key` (0 if there is none) and returns the sum.
  /// Atomic among ranks. To add 0 is to read the number without waiting, which happens often, and
  /// need not write it.
  virtual std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) = 0;

  /// Waits until `key` has a value.
  virtual void wait(std::string_view key, Deadline deadline) = 0;

  /// Waits like get(), and throws `peer_lost` where `key` has no value and something of `unless`
  /// ends the wait. A store that can wait for one key alone, as this default, does not look at
  /// `unless`.
  virtual std::string get_unless(std::string_view key, const Unless& unless, Deadline deadline) {
    static_cast<void>(unless);
    return get(key, deadline);
  }

  /// Has the store write `value`, of 1 KiB at most, under `key`, unless that has a value, when
  /// this process leaves the store, in whatever way it ends. An empty `value` takes that back. A
  /// store that does not notice the end of a process, as this default, does nothing.
  virtual void set_when_gone(std::string_view key, std::string_view value, Deadline deadline) {
    static_cast<void>(key), static_cast<void>(value), static_cast<void>(deadline);
  }

  /// Says that this process is one of `sharers` which alone use the keys that begin with `prefix`,
  /// of 1 to 1000 bytes. The store deletes those keys once so many that have said it have left
  /// the store, in whatever way they ended. The call does not wait for the store, and throws
  /// nothing but `usage`. A store that does not notice the end of a process, as this default, does
  /// nothing.
  virtual void share(std::string_view prefix, int sharers) {
    static_cast<void>(prefix), static_cast<void>(sharers);
  }
};

/// The longest ticket, in bytes.
inline constexpr std::size_t kMaxTicketBytes = 120;

/// Serves a store from a thread of this process, for a job that no launcher has started, and
/// returns a ticket by which processes connect to it, at most kMaxTicketBytes bytes. Who has the
/// ticket may connect, so it must be kept as a secret is: it holds one that is drawn by lot. The
/// server waits until a process connects, and ends when all that had connected have left.
///
/// Processes of this machine and user connect through a Unix socket, others by TCP to a free port
/// of any of this machine's addresses (of the loopback interface alone if Config::interfaces is
/// "lo"), with TLS if Config::tls says so. Any thread may call it. Throws `unavailable` if there
/// are no sockets or threads.
[[nodiscard]] TUTTI_API std::string serve_store(const Config& config);

/// Connects to the store of `ticket`, as long as the result exists. Any thread may call it. Throws
/// `usage` for what is no ticket, `timeout` if the server cannot be reached before the deadline,
/// `peer_lost` at once if it was on this machine and has ended, or soon after `given_up` (see
/// Unless) has returned true, and `mismatch` if it uses TLS and `config` does not, or the other way
/// round.
[[nodiscard]] TUTTI_API std::shared_ptr<Store> connect_store(
    std::string_view ticket, Store::Deadline deadline, const Config& config,
    const std::function<bool()>& given_up = nullptr);

/// Returns the ticket of a store at a known address, "host:port", for processes that can hand each
/// other nothing: each of them computes it, from the same address and the same secret, and one of
/// them serves the store with serve_store_at(). connect_store() waits for that one. Without a
/// secret in `config`, and unless Config::trust_network is set, the host has to be this machine,
/// and only its processes can connect. It asks a name server if `address` has a name. Any thread
/// may call it. Throws `usage` for what is no address, or is another machine's and there is no
/// secret, and `timeout` if the name has not been found by the deadline.
[[nodiscard]] TUTTI_API std::string ticket_at(std::string_view address, Store::Deadline deadline,
                                              const Config& config);

/// Serves the store of a ticket that ticket_at() has made, unless this process serves it already,
/// for as long as this process exists: keep the keys of each use apart. Any thread may call it.
/// Throws `usage` for what is no ticket or another machine's, and `unavailable` if another process
/// serves it, its port is in use, or there are no sockets or threads.
TUTTI_API void serve_store_at(std::string_view ticket, const Config& config);

}  // namespace tutti
