#include "rendezvous/store/torch_agent.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <string_view>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "net/tcp_socket.h"

namespace tutti::torch_agent {
namespace {

using rendezvous::Joined;
using rendezvous::Route;
using std::chrono::seconds;
using std::chrono::steady_clock;

// The protocol of torch's TCPStore, as in torch 2.0 to 2.13: a query begins with one byte, texts
// and lists are preceded by a 64-bit length, and `set` has no reply.
enum class Query : std::uint8_t { validate = 0, set = 1, get = 3, check = 5 };
constexpr std::uint32_t kValidation = 0x3C85F7CE;
constexpr char kReady = 0;
constexpr std::uint64_t kMostAddressBytes = 4096;
constexpr seconds kAttempt{3};

// Builds the bytes of a query.
class Message {
 public:
  explicit Message(Query what) { bytes_.push_back(static_cast<char>(what)); }
  template <typename Number>
  Message& number(Number value) {
    bytes_.append(bytes_of(value));
    return *this;
  }
  Message& text(std::string_view value) {
    bytes_.append(bytes_of(std::uint64_t{value.size()})).append(value);
    return *this;
  }
  std::string_view bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A connection to the agent's store. Once a call has failed, why_not() has the reason and all
// further calls fail without effect.
class Agent {
 public:
  Agent(const SocketAddress& where, TimePoint deadline)
      : deadline_(std::min<TimePoint>(deadline, steady_clock::now() + kAttempt)) {
    const net::Found found = net::find_places(where, deadline_);
    why_not_ = found.why_not;
    for (const net::TcpPlace& place : found.places) {
      auto connecting = net::connect_tcp(place, deadline_);
      why_not_ = connecting.why_not;
      if (!connecting.socket) continue;
      connection_ = net::Connection(std::move(connecting.socket));
      send(Message(Query::validate).number(kValidation));
      return;
    }
  }

  const std::string& why_not() const { return why_not_; }

  void send(const Message& message) {
    if (!why_not_.empty()) return;
    connection_.queue(message.bytes());
    if (!connection_.flush()) fail("it closed the connection");
  }

  // Receives `count` bytes; returns an empty string if that fails.
  std::string receive(std::size_t count) {
    while (why_not_.empty() && connection_.received().size() < count) {
      if (!net::await_events(connection_.fd(), POLLIN, deadline_))
        fail("it does not answer");
      else if (!connection_.receive())
        fail("it closed the connection");
    }
    if (!why_not_.empty()) return {};
    std::string received(connection_.received().substr(0, count));
    connection_.consume(count);
    return received;
  }

  std::optional<std::string> get(std::string_view key) {
    send(Message(Query::check).number(std::uint64_t{1}).text(key));
    const std::string there = receive(1);
    if (!why_not_.empty()) return std::nullopt;
    if (there.front() != kReady) {
      fail("rank 0 has not said yet where its store is");
      return std::nullopt;
    }
    send(Message(Query::get).text(key));
    const auto length = fixed_part<std::uint64_t>(receive(sizeof(std::uint64_t)));
    if (length && *length > kMostAddressBytes) fail("it says what rank 0 never said");
    if (!length || !why_not_.empty()) return std::nullopt;
    std::string address = receive(*length);
    return why_not_.empty() ? std::optional(std::move(address)) : std::nullopt;
  }

 private:
  void fail(std::string_view why_not) { why_not_.assign(why_not); }

  const TimePoint deadline_;
  net::Connection connection_;
  std::string why_not_;
};

class AgentRoute final : public Route {
 public:
  AgentRoute(JobAddress job, int rank, SocketAddress agent, std::string key, Secret secret,
             Random& random, bool tls)
      : job_(std::move(job)),
        rank_(rank),
        agent_(std::move(agent)),
        key_(std::move(key)),
        secret_(std::move(secret)),
        random_(random),
        tls_(tls) {
    assert(rank_ >= 0 && !key_.empty());
  }

  std::optional<Joined> reach(const Patience& patience, std::string& obstacle) override {
    Agent agent(agent_, patience.deadline);
    const auto address = agent.get(key_);
    const auto places = parse_socket_addresses(address.value_or(""));
    if (!places.empty())
      return rendezvous::tcp_route(job_, rank_, places, secret_, random_, tls_)
          ->reach(patience, obstacle);
    const std::string_view why_not =
        address ? "what stands there is no address" : std::string_view(agent.why_not());
    obstacle = fmt::format("torchrun's agent at {}: {}", to_text(agent_), why_not);
    return std::nullopt;
  }
  std::string place() const override {
    return "the address that torchrun's agent at " + to_text(agent_) + " knows";
  }
  std::string advice() const override {
    return "see whether rank 0 has started, with a secret as well";
  }
  std::chrono::milliseconds longest_pause() const override {
    return std::chrono::milliseconds(200);
  }

 private:
  const JobAddress job_;
  const int rank_;
  const SocketAddress agent_;
  const std::string key_;
  const Secret secret_;
  Random& random_;
  const bool tls_;
};

}  // namespace

void publish_address(const SocketAddress& where, std::string_view key, std::string_view address,
                     TimePoint deadline) {
  std::string why_not;
  do {
    Agent agent(where, deadline);
    agent.send(Message(Query::set).text(key).text(address));
    if (agent.get(key) == address) return;
    why_not = agent.why_not().empty() ? fmt::format("it holds another word") : agent.why_not();
  } while (steady_clock::now() < deadline && poll(nullptr, 0, 100) == 0);
  throw Error(
      ErrorKind::unavailable,
      fmt::format("rank 0 cannot leave word with torchrun's agent at {} where the store is: "
                  "{}; set TUTTI_STORE=tcp://HOST:PORT on all ranks, with a port that "
                  "nobody uses on rank 0's machine",
                  to_text(where), why_not));
}

std::unique_ptr<Route> agent_route(JobAddress job, int rank, SocketAddress agent, std::string key,
                                   Secret secret, Random& random, bool tls) {
  return std::make_unique<AgentRoute>(std::move(job), rank, std::move(agent), std::move(key),
                                      std::move(secret), random, tls);
}

}  // namespace tutti::torch_agent
