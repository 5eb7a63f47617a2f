// Notices that an object is used in a process that was forked off its owner.
#pragma once

#include <unistd.h>

#include <string_view>

namespace tutti {

/// A forked child has the memory of its parent, but not its threads, and it shares its sockets:
/// whatever it did with them would disturb the parent. Thread-safe.
class ForkGuard {
 public:
  bool in_owner() const noexcept { return getpid() == owner_; }

  /// Throws `usage` in any process but the one that made the guard. `what`: "the store".
  void check(std::string_view what) const {
    if (!in_owner()) refuse(what);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const;

  const pid_t owner_ = getpid();
};

}  // namespace tutti
