// What stands behind the handles of tutti/tutti.h, tutti/persistent.h and tutti/reduction.h.
#pragma once

#include <tutti/persistent.h>
#include <tutti/reduction.h>
#include <tutti/tutti.h>

#include <atomic>
#include <map>
#include <tutti/tutti.hpp>

namespace tutti::c {

/// What a handle points to says so in its first word, until it is destroyed: a wrong pointer is
/// `usage` as far as memory still tells.
template <std::uint32_t kMark>
class Marked {
 public:
  Marked() = default;
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;
  ~Marked() { mark_ = 0; }
  bool is_whole() const noexcept { return mark_ == kMark; }

 private:
  volatile std::uint32_t mark_ = kMark;  // else the compiler leaves the last write out
};

/// `handle` where it is what it should be; else throws `usage` naming it.
template <typename Handle>
Handle& checked(Handle* handle, const char* name) {
  if (handle == nullptr) throw Error(ErrorKind::usage, std::string(name) + " is null");
  if (!handle->is_whole())
    throw Error(ErrorKind::usage, std::string(name) + " is no such handle, or has been destroyed");
  return *handle;
}

/// Where a result goes; throws `usage` naming it where it is null.
template <typename T>
T& result(T* pointer, const char* name) {
  if (pointer == nullptr) throw Error(ErrorKind::usage, std::string(name) + " is null");
  return *pointer;
}

}  // namespace tutti::c

struct tuttiComm : tutti::c::Marked<0x434f4d4d> {
  explicit tuttiComm(tutti::Communicator c);

  /// The memory that tuttiMemAlloc() gave, by address. The communicator shares its ownership, so
  /// that the memory lives until the last call has ended, also where a callback destroys this
  /// handle.
  const std::shared_ptr<std::map<const void*, tutti::Buffer>> buffers =
      std::make_shared<std::map<const void*, tutti::Buffer>>();
  tutti::Communicator communicator;
  std::atomic<int> persistent_calls{0};  ///< Not freed yet; they must not outlive the communicator.
};

struct tuttiGroup : tutti::c::Marked<0x47525550> {
  tutti::Group group;
};

struct tuttiPersistent : tutti::c::Marked<0x50455253> {
  tuttiPersistent(tuttiComm& c, tutti::Persistent p) : comm(c), persistent(std::move(p)) {
    ++comm.persistent_calls;
  }
  ~tuttiPersistent() { --comm.persistent_calls; }

  tuttiComm& comm;
  tutti::Persistent persistent;
};

struct tuttiReduction : tutti::c::Marked<0x52454455> {
  tuttiReduction(const char* its_name, std::size_t element_bytes, tuttiReduceFunction_t f, void* c);

  const std::string name;
  const tuttiReduceFunction_t function;
  void* const context;
  const tutti::UserReduction reduction;
};
