// The client of the store's server, for a rank that has joined.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/store.hpp>

#include "common/patience.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/route.h"
#include "rendezvous/store/standby.h"
#include "rendezvous/store/way.h"

namespace tutti::rendezvous {

/// Sends requests and receives replies. Thread-safe: a thread that waits for a key does not block
/// the requests of others. No thread holds the mutex while it blocks. One of the threads that wait
/// for replies, called the pump, polls the socket for all of them; a thread that waits to send
/// polls the socket as well.
///
/// A call that is given up, at its deadline at the latest, leaves the connection intact: the unsent
/// rest of its request is sent before the next one, and a late reply is recognized by its id and
/// dropped.
class StoreClient {
 public:
  /// If the server is lost, the client goes to the one that stood by, by `way`, and repeats the
  /// requests that were not answered. Without a way it does not. `idle`: see Verb::be_rank.
  StoreClient(Joined joined, int rank, std::optional<Way> way = std::nullopt, bool idle = false);

  /// Sends a request and returns the bytes of the reply. Throws the errors of Store.
  std::string call(Verb verb, std::string_view key, std::string_view value,
                   const Patience& patience);
  /// Store::set_when_gone(), at this server and at those to which the client goes after it.
  void set_when_gone(std::string_view key, std::string_view value, Store::Deadline deadline);
  /// Does what Store::share() does, at this server and at those to which the client goes after it.
  void share(std::string_view prefix, int sharers);
  /// The process is a rank from now on, see Verb::be_rank.
  void be_rank(Store::Deadline deadline);

 private:
  struct Call {
    std::string request;           // to be sent again to another server
    std::optional<Status> status;  // set when the reply has arrived
    std::string bytes;
  };
  enum class Ended { done, late, given_up, lost };

  template <typename Done>
  Ended pump_until(std::unique_lock<std::mutex>& lock, const Patience& patience, Done done);
  bool poll_all(int events, Store::Deadline deadline) const;
  void receive_all();
  void take_replies();
  bool take_reply();
  void take_notice(Status what, std::string address);
  bool go_over(std::unique_lock<std::mutex>& lock, const Patience& patience);
  std::optional<Joined> reach_successor(const std::string& address, const Patience& patience,
                                        std::uint32_t flags,
                                        std::optional<std::string>& hopeless) const;
  [[noreturn]] void refuse(Ended how, Verb verb, std::string_view key) const;

  const int rank_;
  const std::optional<Way> way_;
  // The server that this process has been appointed to run. It outlives the connection, so that
  // this rank leaves before the server lingers.
  std::unique_ptr<Standby> standby_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // The members below are guarded by mutex_, but the descriptor is polled without it.
  std::string server_;
  Fd server_end_;  // readable when the server's process has ended; may be empty
  net::Connection connection_;
  bool lost_ = false;      // The connection has ended; go_over() may find another server.
  bool gone_ = false;      // No server can be found any more.
  std::string why_gone_;   // what the next server has said of it; may be empty
  bool going_ = false;     // A thread is in go_over().
  int polling_ = 0;        // The number of threads that poll the descriptors.
  std::string successor_;  // the address of the server that stands by; empty if there is none
  std::optional<Store::Deadline> hopeless_at_;  // set while no server has been reached
  Store::Deadline looked_at_{};                 // when a server was last looked for
  bool pumping_ = false;
  bool idle_;  // see Verb::be_rank
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Call> calls_;  // indexed by id: the calls for which a thread waits
  std::map<std::string, std::string> when_gone_;  // see set_when_gone()
  std::map<std::string, std::string> shared_;     // see share()
};

}  // namespace tutti::rendezvous
