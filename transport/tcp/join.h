// How ranks get their connections: of each two, the higher one calls the lower one.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "net/authentication.h"
#include "net/stream.h"
#include "net/tcp_socket.h"
#include "transport/context.h"
#include "transport/tcp/address.h"
#include "transport/tcp/frame.h"

namespace tutti::tcp {

/// The far end of a connection that is being made: bytes of the handshake, no more of them than
/// belong to it.
class Greeting {
 public:
  explicit Greeting(Fd socket) : stream_(std::move(socket)) {}

  int fd() const noexcept { return stream_.fd(); }
  Stream& stream() noexcept { return stream_; }
  /// Reads until `bytes` have come; false: the other end is gone. What is complete is in input().
  bool read(std::size_t bytes);
  std::string_view input() const noexcept { return input_; }
  void consume() noexcept { input_.clear(); }
  bool write(std::string_view bytes);
  Stream take() noexcept { return std::move(stream_); }

 private:
  Stream stream_;
  std::string input_;
};

/// By rank.
struct Connections {
  std::vector<Stream> data;
  std::vector<Stream> lifelines;  ///< Empty: there are more ranks than kMostWithLifelines.
};

/// With two connections a peer and 1024 descriptors, which is what a process often may have, half
/// are left for other things.
inline constexpr std::size_t kMostWithLifelines = 256;

/// One use, in one thread. Strangers at this rank's port get 72 bytes parsed and 5 s; there are 64
/// places for them beside those for the ranks' connections, the oldest goes first. A caller that
/// has proved that it is a rank is never cut: it may take itself for joined already, and not call
/// again.
class Join {
 public:
  /// `addresses` by rank; none: there is no connection to that rank. `listener` is this rank's.
  Join(const TransportContext& context, const Secret& secret,
       const std::vector<std::optional<Address>>& addresses, const Fd& listener);

  /// Throws `timeout` naming the ranks that never came and what was met on the way to
  /// them, `mismatch` where a secret is another one.
  Connections run(TimePoint deadline);

 private:
  struct Caller {  // to a lower rank
    Use use = Use::data;
    int rank = 0;
    std::size_t place = 0;  // of its address, at which it is
    int rounds = 0;         // through all of its places
    std::optional<Greeting> greeting;
    bool connected = false;
    std::optional<AuthInitiator> proof;
    std::size_t awaited = 0;  // bytes of the next answer
    TimePoint give_up{};      // this place
    TimePoint next_try{};
    std::string obstacle;
    AuthFailure refused = AuthFailure::none;
  };
  struct Stranger {
    Greeting greeting;
    AuthAcceptor proof;
    TimePoint give_up{};

    bool has_proved() const noexcept { return proof.state() == AuthAcceptor::State::done; }
  };

  void call(Caller& caller, TimePoint now);
  void go_on(Caller& caller, TimePoint now);
  bool connected(Caller& caller, TimePoint now);
  void authenticate(Caller& caller, TimePoint now);
  void encrypt(Caller& caller, TimePoint now);
  void be_joined(Caller& caller, TimePoint now);
  void give_up(Caller& caller, std::string why, TimePoint now);
  void check_refusals(const Caller& caller) const;
  void accept_some(TimePoint now);
  bool make_room();
  bool go_on(Stranger& stranger);
  bool encrypt(Stranger& stranger);
  bool open(Stranger& stranger);
  bool complete() const;
  bool is_peer(std::size_t rank) const {
    return addresses_[rank] && static_cast<int>(rank) != context_.rank;
  }
  bool has_lifelines() const { return !joined_.lifelines.empty(); }
  bool is_joined(std::size_t rank) const {
    return joined_.data[rank] && (!has_lifelines() || joined_.lifelines[rank]);
  }
  Stream& joined(const Caller& caller) {
    auto& connections = caller.use == Use::data ? joined_.data : joined_.lifelines;
    return connections[static_cast<std::size_t>(caller.rank)];
  }
  void wait(TimePoint deadline);
  [[noreturn]] void refuse_late();
  const Address& address(int rank) const { return *addresses_[static_cast<std::size_t>(rank)]; }

  const TransportContext& context_;
  const Secret& secret_;
  const std::vector<std::optional<Address>>& addresses_;
  const Fd& listener_;
  const std::shared_ptr<const TlsContext> tls_;  // null: nothing is encrypted
  std::vector<Caller> callers_;
  std::list<Stranger> strangers_;  // the oldest first
  Connections joined_;
};

}  // namespace tutti::tcp
