// An object that only the process that made it can reach.
#pragma once

#include <unistd.h>

#include <memory>
#include <string_view>
#include <utility>

namespace tutti {

/// Throws `usage`: process `owner`'s `what` was used in another.
[[noreturn]] void refuse_other_process(std::string_view what, pid_t owner);

/// For what has locks, threads or sockets. A forked child has a copy of the memory, but not the
/// threads that may hold the locks, and its sockets are its parent's: there get() throws `usage`,
/// and the destructor leaves the T alone, because even destroying a condition variable waits for
/// threads that the child does not have. Thread-safe as T is.
template <typename T>
class ProcessOwned {
 public:
  /// `what`, for the error: "the store". Valid as long as this.
  template <typename... Args>
  explicit ProcessOwned(std::string_view what, Args&&... args)
      : what_(what), value_(std::make_unique<T>(std::forward<Args>(args)...)) {}
  ~ProcessOwned() {
    if (getpid() != owner_) static_cast<void>(value_.release());
  }
  ProcessOwned(const ProcessOwned&) = delete;
  ProcessOwned& operator=(const ProcessOwned&) = delete;

  T& get() const {
    if (getpid() != owner_) refuse_other_process(what_, owner_);
    return *value_;
  }

 private:
  const std::string_view what_;
  const pid_t owner_ = getpid();
  std::unique_ptr<T> value_;
};

}  // namespace tutti
