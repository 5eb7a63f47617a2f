// The server that stands by for the server of a job's store, and takes its place when that ends.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "common/fd.h"
#include "rendezvous/store/way.h"

namespace tutti::rendezvous {

/// Runs from construction to destruction, in a thread of its own, unless it is dismissed or cannot
/// reach the primary. All functions are called by one thread at a time.
class Standby {
 public:
  /// `primary` is the address of the server (see Way). Throws `unavailable` if there is no thread.
  Standby(Way way, std::string primary);
  /// If it has taken over, it lingers as StoreServer does.
  ~Standby();
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;

  /// Whether it has been dismissed or has failed.
  bool over() const noexcept { return over_; }

 private:
  std::optional<Joined> join(Route& route) const;
  void run();

  const Way way_;
  const std::string primary_;
  const Fd stop_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace tutti::rendezvous
