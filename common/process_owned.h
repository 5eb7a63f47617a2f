// An object that can be used only in the process that created it.
#pragma once

#include <unistd.h>

#include <cassert>
#include <memory>
#include <string_view>
#include <utility>

namespace tutti {

/// Throws `usage`, saying that `what`, which belongs to process `owner`, was used in another
/// process.
[[noreturn]] void refuse_other_process(std::string_view what, pid_t owner);

/// Holds an object that has locks, threads or sockets. A forked child has a copy of the memory, but
/// not the threads that may hold the locks, and shares its sockets with its parent. In a child
/// get() therefore throws `usage`, and the destructor leaves the T alone, because even destroying a
/// condition variable waits for threads that the child does not have. As thread-safe as T.
template <typename T>
class ProcessOwned {
 public:
  /// `what` names the object in the error, for example "the store". It must stay valid as long as
  /// this object.
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
    assert(value_ != nullptr);
    return *value_;
  }

 private:
  const std::string_view what_;
  const pid_t owner_ = getpid();
  std::unique_ptr<T> value_;
};

}  // namespace tutti
