// The client of the store's server, for a rank that has joined.
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

/// Sends requests and receives replies. Thread-safe: a thread that waits for a key does not block
/// the requests of others. No thread holds the mutex while it blocks. One of the threads that wait
/// for replies, called the pump, polls the socket for all of them; a thread that waits to send
/// polls the socket as well.
///
/// A call that is given up at its deadline leaves the connection intact: the unsent rest of its
/// request is sent before the next one, and a late reply is recognized by its id and dropped.
class StoreClient {
 public:
  StoreClient(Joined joined, int rank);

  /// Sends a request and returns the bytes of the reply. Throws the errors of Store.
  std::string call(Verb verb, std::string_view key, std::string_view value,
                   Store::Deadline deadline);

 private:
  struct Call {
    std::optional<Status> status;  // set when the reply has arrived
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
  const Fd server_end_;  // readable when the server's process has ended; may be empty

  std::mutex mutex_;
  std::condition_variable changed_;
  // The members below are guarded by mutex_, but the descriptor is polled without it.
  net::Connection connection_;
  bool lost_ = false;
  bool pumping_ = false;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Call> calls_;  // indexed by id: the calls for which a thread waits
};

}  // namespace tutti::rendezvous
