// The first error of a communicator, which ends every call under way and every later one.
#pragma once

#include <optional>
#include <string_view>

#include <tutti/error.hpp>

#include "common/sync.h"
#include "runtime/communicator_parts.h"

namespace tutti {

/// Holds the first error of a communicator. Thread-safe. Once there is an error, it stays.
class Failure {
 public:
  /// `parts` outlive this object.
  explicit Failure(const CommunicatorParts& parts) : parts_(parts) {}

  /// Returns whether calls can be made: nothing has failed, and this is the process that made the
  /// communicator.
  bool usable() const noexcept { return parts_.runtime->in_own_process() && !exists(); }
  /// Throws `usage` or the error if calls cannot be made. `what` names the call.
  void check_usable(std::string_view what) const;
  /// Throws `usage` in a forked child, in which a thread of the parent may have held a lock for
  /// ever. `what` names the call.
  void refuse_in_child(std::string_view what) const;

  bool exists() const noexcept { return exists_.load(std::memory_order_seq_cst); }
  std::optional<Error> error() const;
  /// Throws the error, if there is one.
  void throw_if_any() const {
    if (exists()) [[unlikely]]
      throw *error();
  }

  /// Ends all calls that are under way on this rank, in any thread, and on its peers.
  void abort(std::string_view why);

  /// Looks whether a peer has failed, and makes its error the communicator's. It makes no system
  /// call: polls and the background thread have read what peers told. For the owner of the engine.
  void notice_failed_peers() noexcept;

  /// Makes `error` the communicator's error, unless there was one before: the status page tells the
  /// peers, and exists() tells later calls and those that are under way. Returns the communicator's
  /// error, which every call that ends with an error should say: an error that a peer reports may
  /// be an echo of this rank's own.
  const Error& set(const Error& error) noexcept;

 private:
  const CommunicatorParts& parts_;
  mutable sync::Mutex mutex_;
  std::optional<Error> error_;        // guarded by mutex_; set once
  sync::Atomic<bool> exists_{false};  // whether error_ is set
};

}  // namespace tutti
