// Declares a UCP worker as a device: its queue pairs share it, and one thread at a time uses it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/random.h"
#include "common/sync.h"
#include "transport/queue_pair/device.h"
#include "transport/ucx/header.h"
#include "transport/ucx/libucp.h"
#include "transport/ucx/open.h"

namespace tutti::ucx {

class UcxQueuePair;
class Worker;

/// Represents memory with which UCX works, until this object is destroyed. It is created and
/// destroyed with the worker's lock held.
class Mapping {
 public:
  /// Throws `unavailable`.
  Mapping(const Worker& worker, std::byte* data, std::size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ucp_mem_h handle() const noexcept { return handle_; }

 private:
  const Worker& worker_;
  ucp_mem_h handle_ = nullptr;
};

/// Owns a UCP context and its worker. Thread-safe: queue pairs take the lock, which is never held
/// while anything above is called. UCX calls back only during progress(), with the lock held.
class Worker final : public qp::Device, public std::enable_shared_from_this<Worker> {
 public:
  /// `log` may be null; it and `random` outlive the worker. Throws `unavailable`.
  Worker(const Library& library, const Settings& settings, Random& random, Log* log);
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  std::unique_ptr<qp::QueuePair> make(const qp::QueueLimits& limits, void* owner) override;
  const char* name() const noexcept override { return "UCX"; }
  int event_fd() const noexcept override { return event_fd_; }
  void take_events(std::vector<void*>& owners) override;

  /// Counts the messages that no peer has sent.
  std::uint64_t strays() const {
    const std::lock_guard lock(mutex);
    return strays_;
  }
  const Library& library() const noexcept { return library_; }
  const char* text(ucs_status_t status) const { return library_.status_string(status); }

  mutable sync::Mutex mutex;

  // All functions below are called with the lock held.
  ucp_worker_h handle() const noexcept { return worker_; }
  ucp_context_h context() const noexcept { return context_; }
  const std::string& address() const noexcept { return address_; }
  std::uint64_t next_random() { return random_.next(); }
  void add(std::uint64_t token, UcxQueuePair& pair) { pairs_.emplace(token, &pair); }
  void remove(std::uint64_t token) noexcept { pairs_.erase(token); }
  std::shared_ptr<Mapping> map(std::byte* data, std::size_t bytes);
  /// Lets UCX work, and then the queue pairs that have work of their own. Not to be called by what
  /// UCX calls.
  void progress() noexcept;
  /// Makes event_fd() readable for the next event, or at once where there is one.
  void arm() noexcept;
  using Lock = std::unique_lock<sync::Mutex>;
  /// Lets UCX work until `done`, and lets other threads in between. Returns false where that takes
  /// longer than the limit.
  bool wait(Lock& lock, std::chrono::milliseconds limit,
            const std::function<bool()>& done) noexcept;
  void signal() noexcept { library_.worker_signal(worker_); }

 private:
  void open(const Settings& settings);
  void create();
  ucs_status_t take(const std::byte* header, std::size_t header_bytes, void* data,
                    std::size_t bytes, bool rendezvous) noexcept;
  void close() noexcept;

  const Library library_;
  Random& random_;
  Log* const log_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;                             // belongs to the worker
  std::map<std::uint64_t, UcxQueuePair*> pairs_;  // by token
  // Holds the memory that is mapped at the moment, once for all peers.
  std::map<std::pair<std::byte*, std::size_t>, std::weak_ptr<Mapping>> mappings_;
  std::uint64_t strays_ = 0;
};

}  // namespace tutti::ucx
