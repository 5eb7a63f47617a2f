// Ranks that use TCP in one process, for tests of what is particular to that transport.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <tutti/error.hpp>

#include "common/clock.h"
#include "common/fd.h"
#include "common/random.h"
#include "net/tcp_socket.h"
#include "transport/channel.h"
#include "transport/context.h"
#include "transport/mesh/address.h"
#include "transport/tcp/tcp.h"

namespace tutti {

/// Ranks that use TCP, each of which is connected by a thread of its own.
class TcpTransport : public testing::Test {
 protected:
  static constexpr std::chrono::seconds kLong{30};

  TransportContext context(int rank, int size, std::string secret = "the secret of this job") {
    TransportContext context;
    context.rank = rank;
    context.size = size;
    context.clock = &clock_;
    context.random = &random_;
    context.config = &config_;
    context.max_message_bytes = context.message_limit = 4096;
    context.secret = Secret(std::move(secret));
    return context;
  }
  static SocketAddress place_of(const Transport& rank) {
    const auto address = mesh::Address::parse(rank.address());
    for (const SocketAddress& place : address->places)
      if (place.host == "127.0.0.1") return place;
    return {};
  }
  Fd call(const SocketAddress& place) const {
    const auto found = net::find_places(place, clock_.now() + kLong);
    return std::move(net::connect_tcp(found.places.front(), clock_.now() + kLong).socket);
  }
  static void say(const Fd& socket, std::string_view bytes) {
    static_cast<void>(!send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  /// Returns the text of the error that each rank's connect() threw, empty if none.
  std::vector<std::string> connect(std::vector<std::unique_ptr<Transport>>& ranks,
                                   std::chrono::milliseconds limit = kLong,
                                   std::vector<std::string> addresses = {}) {
    if (addresses.empty())
      for (const auto& rank : ranks) addresses.push_back(rank->address());
    std::vector<std::future<std::string>> ends;
    for (const auto& rank : ranks)
      ends.push_back(std::async(std::launch::async, [&, limit] {
        try {
          rank->connect(addresses, clock_.now() + limit);
        } catch (const Error& error) {
          return std::string(to_string(error.kind())) + ": " + error.what();
        }
        return std::string();
      }));
    std::vector<std::string> texts;
    for (auto& end : ends) texts.push_back(end.get());
    return texts;
  }
  /// Connects two ranks; rank 1 connects to rank 0 at `places`.
  void connect_by(std::vector<SocketAddress> places,
                  std::vector<std::unique_ptr<Transport>>& ranks) {
    mesh::Address address = mesh::Address::parse(ranks[0]->address()).value();
    address.places = std::move(places);
    ASSERT_THAT(connect(ranks, kLong, {address.to_string(), ranks[1]->address()}),
                testing::Each(testing::IsEmpty()));
  }
  /// Makes ranks 0 to `size` - 1, which are not connected.
  std::vector<std::unique_ptr<Transport>> make(int size) {
    std::vector<std::unique_ptr<Transport>> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back(tcp::entry().make(context(rank, size)));
    return ranks;
  }
  template <typename What>
  bool eventually(Transport& rank, What&& what) const {
    for (const TimePoint until = clock_.now() + kLong; clock_.now() < until; rank.progress())
      if (what()) return true;
    return false;
  }

  SteadyClock clock_;
  SystemRandom random_;
  Config config_;  // the settings of all ranks made here
};

}  // namespace tutti
