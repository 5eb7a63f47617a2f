// Defines the objects behind the handles of the C headers.
#pragma once

#include <tutti/persistent.h>
#include <tutti/plans.h>
#include <tutti/reduction.h>
#include <tutti/tutti.h>

#include <atomic>
#include <cassert>
#include <map>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace tutti::c {

/// Base of an object behind a handle. Its first word is a mark of the object's kind until the
/// object is destroyed, so that a wrong pointer is `usage` as long as the memory has not been
/// reused.
template <std::uint32_t kMark>
class Marked {
 public:
  Marked() = default;
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;
  ~Marked() { mark_ = 0; }
  bool is_whole() const noexcept { return mark_ == kMark; }

 private:
  volatile std::uint32_t mark_ = kMark;  // volatile, so that the compiler keeps the last write
};

/// Returns the object if `handle` points to one of its kind; otherwise throws `usage` with `name`.
template <typename Handle>
Handle& checked(Handle* handle, const char* name) {
  if (handle == nullptr) throw Error(ErrorKind::usage, std::string(name) + " is null");
  if (!handle->is_whole())
    throw Error(ErrorKind::usage, std::string(name) + " is no such handle, or has been destroyed");
  return *handle;
}

/// Returns the place of a result; throws `usage` with `name` if the pointer is null.
template <typename T>
T& result(T* pointer, const char* name) {
  if (pointer == nullptr) throw Error(ErrorKind::usage, std::string(name) + " is null");
  return *pointer;
}

}  // namespace tutti::c

struct tuttiComm : tutti::c::Marked<0x434f4d4d> {
  explicit tuttiComm(tutti::Communicator c);

  /// The memory that tuttiMemAlloc() returned, and what tuttiMemRegister() was given, by address.
  struct Memory {
    std::map<const void*, tutti::Buffer> buffers;
    std::map<const void*, tutti::RegisteredMemory> registered;
  };
  /// The communicator shares the ownership, so that the memory lives until the last call has ended,
  /// even if a callback destroys this handle.
  const std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  tutti::Communicator communicator;
  std::atomic<int> persistent_calls{0};  ///< Number that is not freed yet; none may outlive this.
  /// These hold the last results of tuttiCommPrices() and tuttiCommExplain(). The rows point into
  /// the prices.
  std::vector<tutti::AlgorithmPrice> prices;
  std::vector<tuttiPrice_t> price_rows;
  std::string explained;
};

struct tuttiGroup : tutti::c::Marked<0x47525550> {
  tutti::Group group;
};

struct tuttiPersistent : tutti::c::Marked<0x50455253> {
  tuttiPersistent(tuttiComm& c, tutti::Persistent p) : comm(c), persistent(std::move(p)) {
    ++comm.persistent_calls;
  }
  ~tuttiPersistent() {
    assert(comm.is_whole() && comm.persistent_calls > 0);
    --comm.persistent_calls;
  }

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
