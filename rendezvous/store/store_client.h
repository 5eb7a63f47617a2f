// A rank's end of the store's socket, once it has joined.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/store.hpp>

#include "rendezvous/store/protocol.h"
#include "rendezvous/store/route.h"

namespace tutti::rendezvous {

/// Thread-safe: a thread that waits for a key does not keep others from asking. No thread holds the
/// mutex while it blocks; one of those that wait for replies, the pump, polls the socket for all,
/// and who waits to send polls it beside him.
///
/// A call given up at its deadline leaves the connection whole: what of its request has not been
/// sent goes out before the next one, and a late reply is dropped by its number.
class StoreClient {
 public:
  StoreClient(Joined joined, int rank);

  /// The reply's bytes. Throws as Store says.
  std::string call(Verb verb, std::string_view key, std::string_view value,
                   Store::Deadline deadline);

 private:
  struct Call {
    std::optional<Status> status;  // once replied
    std::string bytes;
  };
  enum class Ended { done, late, lost };

  template <typename Done>
  Ended pump_until(std::unique_lock<std::mutex>& lock, Store::Deadline deadline, Done done);
  bool poll_all(int events, Store::Deadline deadline) const;
  void receive_all();
  bool take_reply();
  [[noreturn]] void refuse(Ended how, Verb verb, std::string_view key) const;

  const int rank_;
  const std::string server_;
  const Fd server_end_;  // readable when the server's process has ended; may be none

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_. The descriptor itself is polled without.
  net::Connection connection_;
  bool lost_ = false;
  bool pumping_ = false;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Call> calls_;  // by id: those that a thread waits for
};

}  // namespace tutti::rendezvous
