// Declares the memory beside the slots that devices may use: what the program has registered, and
// the memory of channels into which they read; and the registrations with devices that are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/sync.h"
#include "transport/queue_pair/device.h"

namespace tutti::qp {

class Connection;
class Path;

/// Holds the memory of one endpoint. Each piece of it is registered with a queue pair when that
/// first sends or receives a message there, as a whole, and stays so until the memory is removed or
/// the registration makes room: of those that no message uses, the one that was used longest ago
/// goes. Thread-safe. A connection calls it with its lock held, and remove() calls connections.
class Registrations : public std::enable_shared_from_this<Registrations> {
 public:
  struct Limits {
    std::size_t count = 1024;
    std::size_t bytes = std::size_t{8} << 30;
  };
  struct Counters {
    std::uint64_t hits = 0, made = 0, evicted = 0, refused = 0;
    std::size_t count = 0, bytes = 0;  ///< Of the registrations that there are.
  };

  /// `refused` is told why memory cannot be registered, the first time.
  Registrations(Limits limits, std::function<void(const std::string&)> refused)
      : limits_(limits), refused_(std::move(refused)) {}

  /// Adds memory, which peers may read where `readable`, until the last copy of the result is
  /// destroyed. By then no message uses it, and no device: see Connection::withdraw().
  std::shared_ptr<void> add(std::byte* data, std::size_t bytes, bool readable);

 private:
  struct Entry;

 public:
  /// Keeps a registration while a message uses it.
  class Use {
   public:
    Use() = default;
    Use(Registrations& owner, Entry& entry) noexcept : owner_(&owner), entry_(&entry) {}
    Use(Use&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), entry_(other.entry_) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(entry_, other.entry_);
      return *this;
    }
    ~Use() {
      if (owner_ != nullptr) owner_->end(*entry_);
    }
    explicit operator bool() const noexcept { return owner_ != nullptr; }
    std::uint32_t local_key() const noexcept;
    std::uint32_t remote_key() const noexcept;
    /// Returns the number of the memory.
    std::uint32_t memory() const noexcept;

   private:
    friend class Registrations;
    Registrations* owner_ = nullptr;
    Entry* entry_ = nullptr;
  };

  /// Returns the registration, with a path of a connection, of memory that contains these bytes,
  /// which is made where there is none; or nothing, where there is no such memory, or the device or
  /// the limits refuse.
  Use use(Connection& connection, const Path& path, const std::byte* data, std::size_t bytes,
          bool readable);
  /// Ends a registration although messages use it: a peer that reads it from now on gets an error.
  void revoke(Use& use) noexcept;
  /// Ends all registrations of a connection, whose queue pair is gone.
  void forget(const Connection& connection) noexcept;
  /// Ends all registrations with a path of a connection, whose queue pair is gone.
  void forget(const Connection& connection, std::uint32_t path) noexcept;
  /// Says whether there is none, in which case messages need not ask.
  bool empty() const noexcept { return memory_count_.load(std::memory_order_relaxed) == 0; }
  Counters counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  struct Owned {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint32_t number = 0;
    bool readable = false;
  };
  struct Entry {
    Connection* connection = nullptr;
    std::uint32_t path = 0, memory = 0;
    bool readable = false;           // whether the peer may read it
    std::unique_ptr<Region> region;  // null where the device has refused, or it was revoked
    std::size_t bytes = 0;
    std::uint32_t local_key = 0, remote_key = 0;
    std::uint32_t uses = 0;
    bool ended = false;  // goes with its last use
  };
  using Entries = std::list<Entry>;  // the one that was used last is the first

  void remove(std::uint32_t number) noexcept;
  template <typename Which>
  void erase_if(Which&& which) noexcept;
  void end(Entry& entry) noexcept;
  const Owned* find(const std::byte* data, std::size_t bytes, bool readable) const;
  bool make_room(std::size_t bytes);
  Entries::iterator erase(Entries::iterator entry) noexcept;
  Entries::iterator at(const Entry& entry) noexcept;
  void refuse(const std::string& why);

  const Limits limits_;
  const std::function<void(const std::string&)> refused_;
  sync::Mutex calls_;  // held while connections are called, and taken before theirs
  mutable sync::Mutex mutex_;
  sync::Atomic<std::size_t> memory_count_{0};
  std::multimap<const std::byte*, Owned> memory_;  // by the first byte
  std::size_t longest_ = 0;                        // of all memory that there ever was
  std::uint32_t last_number_ = 0;
  Entries entries_;
  Counters counters_;
};

}  // namespace tutti::qp
