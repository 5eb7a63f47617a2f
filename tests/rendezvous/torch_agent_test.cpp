// Tests with a fake of the store of torchrun's agent, which may answer correctly or not.
#include "rendezvous/store/torch_agent.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "common/bytes.h"
#include "net/connection.h"
#include "net/tcp_socket.h"
#include "venue.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Serves keys and values with the protocol of torch's TCPStore, to one connection at a time.
class FakeAgent {
 public:
  explicit FakeAgent(std::string lie = {}) : lie_(std::move(lie)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeAgent() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  SocketAddress place() const { return {"127.0.0.1", net::port_of(listener_)}; }

 private:
  void serve() {
    for (;;) {
      pollfd called{listener_.get(), POLLIN, 0};
      poll(&called, 1, -1);
      Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) return;
      net::Connection guest(std::move(socket));
      std::string input;
      for (bool open = true; open;) {
        pollfd waited{guest.fd(), POLLIN, 0};
        poll(&waited, 1, -1);
        open = guest.receive();
        input.append(guest.received());
        guest.consume(guest.received().size());
        while (answer(guest, input)) {
        }
        open = guest.flush() && open;
      }
    }
  }

  // Answers the complete query at the front of `input`. Returns false if there is none.
  bool answer(net::Connection& guest, std::string& input) {
    std::string_view rest = input;
    const auto text = [&rest](std::string& out) {
      const auto bytes = fixed_part<std::uint64_t>(rest);
      if (!bytes || rest.size() < sizeof *bytes + *bytes) return false;
      out = rest.substr(sizeof *bytes, *bytes);
      rest.remove_prefix(sizeof *bytes + *bytes);
      return true;
    };
    if (rest.empty()) return false;
    const char query = rest.front();
    rest.remove_prefix(1);
    std::string key, value;
    if (query == 0) {
      const auto magic = fixed_part<std::uint32_t>(rest);
      if (!magic) return false;
      EXPECT_EQ(*magic, 0x3C85F7CEu);
      rest.remove_prefix(sizeof *magic);
    } else if (query == 1) {
      if (!text(key) || !text(value)) return false;
      values_[key] = value;
    } else if (query == 5) {
      if (rest.size() < sizeof(std::uint64_t)) return false;
      rest.remove_prefix(sizeof(std::uint64_t));
      if (!text(key)) return false;
      guest.queue(values_.contains(key) || !lie_.empty() ? std::string_view("\0", 1) : "\1");
    } else if (query == 3) {
      if (!text(key)) return false;
      const std::string found = lie_.empty() ? values_.at(key) : lie_;
      guest.queue(bytes_of(std::uint64_t{found.size()}));
      guest.queue(found);
    } else {
      ADD_FAILURE() << "query " << int{query};
    }
    input.erase(0, input.size() - rest.size());
    return true;
  }

  const std::string lie_;
  const Fd listener_ = net::listen_tcp({"127.0.0.1", 0});
  std::map<std::string, std::string> values_;
  std::thread thread_;
};

std::unique_ptr<rendezvous::Route> route_by(const FakeAgent& agent, const Venue& venue) {
  return torch_agent::agent_route(venue.job(), 1, agent.place(), "key", Venue::secret(),
                                  venue.random());
}

TEST(TorchAgent, TellsOthersWhereRank0Is) {
  const FakeAgent agent;
  Venue venue(ListenerKind::tcp4, 2);
  const auto server = venue.serve();
  std::thread late([&] {
    const auto route = route_by(agent, venue);
    EXPECT_NO_THROW(join_by(*route, venue.job(), 1));
  });
  torch_agent::publish_address(agent.place(), "key", to_text(venue.place()) + "\n", in_time());
  late.join();
}

TEST(TorchAgent, IsNamedWhereItKnowsNothing) {
  const FakeAgent agent;
  const Venue venue(ListenerKind::tcp4, 2);
  const auto route = route_by(agent, venue);
  const Error error = error_of([&] { join_by(*route, venue.job(), 1, in(seconds(1))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr(to_text(agent.place())), HasSubstr("rank 0 has not said yet")));
}

TEST(TorchAgent, IsNotBelieved) {
  for (const std::string& lie : {std::string("no address"), std::string(5000, 'x')}) {
    const FakeAgent agent(lie);
    const Venue venue(ListenerKind::tcp4, 2);
    const auto route = route_by(agent, venue);
    EXPECT_EQ(error_of([&] { join_by(*route, venue.job(), 1, in(milliseconds(100))); }).kind(),
              ErrorKind::timeout);
  }
  Venue impostor(ListenerKind::tcp4, 2);
  const FakeAgent agent(to_text(impostor.place()));
  const auto server = impostor.serve();
  const auto route = torch_agent::agent_route(impostor.job(), 1, agent.place(), "key",
                                              Secret("that the impostor lacks"), impostor.random());
  const Error error = error_of([&] { join_by(*route, impostor.job(), 1, in(milliseconds(100))); });
  EXPECT_THAT(error.what(), HasSubstr("another secret"));
}

TEST(TorchAgent, ThatDoesNotTakeRank0sWordIsAnErrorThatSaysWhatToDo) {
  const FakeAgent agent("another word");
  const Error error = error_of(
      [&] { torch_agent::publish_address(agent.place(), "key", "word", in(milliseconds(100))); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr(to_text(agent.place())), HasSubstr("TUTTI_STORE=tcp://")));
}

}  // namespace
}  // namespace tutti
