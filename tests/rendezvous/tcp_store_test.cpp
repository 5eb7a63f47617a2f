// Tests of how ranks on other machines connect to the store, and of the errors that they get if
// they cannot.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include "common/log.h"
#include "net/tcp_socket.h"
#include "rendezvous/agreement.h"
#include "rendezvous/store/open_store.h"
#include "venue.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kSecret = "a secret of these tests";

LaunchEnvironment launch_of(int rank, int size, const SocketAddress& place) {
  LaunchEnvironment launch;
  launch.rank = launch.local_rank = rank;
  launch.size = size;
  launch.master_address = place.host;
  launch.master_port = place.port;
  launch.tcp_alone = true;
  return launch;
}

Config with_secret(const std::string& secret = kSecret) {
  Config config;
  config.secret = secret;
  return config;
}

std::shared_ptr<Store> open(const LaunchEnvironment& launch, const Config& config = with_secret(),
                            Store::Deadline deadline = in_time()) {
  Log log(LogLevel::error, {});
  return open_store(launch, config, deadline, log).store;
}

/// An address at which nobody listens, unless another process takes the port in the meantime.
SocketAddress free_place(const std::string& host = "127.0.0.1") {
  return {host, net::port_of(net::listen_tcp({host, 0}))};
}

TEST(TcpStore, BringsProcessesTogetherWhateverTheOrderInWhichTheyStart) {
  constexpr int kRanks = 6;
  const SocketAddress place = free_place();
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = kRanks; rank-- > 0;)
    ranks.push_back(std::make_unique<Child>([rank, &place] {
      const auto store = open(launch_of(rank, kRanks, place));
      store->set(fmt::format("rank {}", rank), "here", in_time());
      for (int peer = 0; peer < kRanks; ++peer)
        if (store->get(fmt::format("rank {}", peer), in_time()) != "here") _exit(2);
    }));
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(), 0);
}

TEST(TcpStore, IsFoundByName) {
  const SocketAddress place = free_place();
  Child other([&] {
    open(launch_of(1, 2, {"localhost", place.port}))->set("key", "v", in_time());
  });
  EXPECT_EQ(open(launch_of(0, 2, {"localhost", place.port}))->get("key", in_time()), "v");
  EXPECT_EQ(other.wait(), 0);
}

TEST(TcpStore, NeedsNoSecretWhereTheNetworkIsDeclaredTrusted) {
  Config trusting;
  trusting.trust_network = true;
  const SocketAddress place = free_place();
  Child other([&] { open(launch_of(1, 2, place), trusting)->set("key", "v", in_time()); });
  EXPECT_EQ(open(launch_of(0, 2, place), trusting)->get("key", in_time()), "v");
  EXPECT_EQ(other.wait(), 0);
}

TEST(TcpStore, IsRefusedWithoutASecretAndSaysWhatToDo) {
  for (const int rank : {0, 1}) {
    const Error error = error_of([&] { open(launch_of(rank, 2, free_place()), Config{}); });
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(fmt::format("rank {}", rank)), HasSubstr("TUTTI_SECRET_FILE"),
                      HasSubstr("openssl rand"), HasSubstr("TUTTI_TRUST_NETWORK=yes")));
  }
}

TEST(TcpStore, OfAnotherSecretIsAMismatchThatShowsNeitherOfThem) {
  Venue venue(ListenerKind::tcp4, 2);
  const auto server = venue.serve();
  const Error error = error_of([&] { open(launch_of(1, 2, venue.place())); });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr(to_text(venue.place())),
                                  HasSubstr("another secret"), Not(HasSubstr(kSecret))));
}

TEST(TcpStore, SaysHowManyOfAnotherSecretWereRefusedWhereRanksAreWaitedForInVain) {
  Venue venue(ListenerKind::tcp4, 2);
  const auto server = venue.serve();
  const auto store = venue.join(0);
  Config trusting;
  trusting.trust_network = true;
  error_of([&] { open(launch_of(1, 2, venue.place())); });
  error_of([&] { open(launch_of(1, 2, venue.place()), trusting); });
  std::string warning;
  Log log(LogLevel::warn, [&](LogLevel, std::string_view line) { warning = line; });
  const Error error = error_of([&] {
    exchange(*store, "job", 0, 2, {"mine"}, std::chrono::steady_clock::now() + milliseconds(500),
             {&log, milliseconds(1)});
  });
  const auto says = HasSubstr(
      "; the store has refused 2 connections with another secret, or without "
      "one, the last from '127.0.0.1'");
  EXPECT_THAT(error.what(), says);
  EXPECT_THAT(warning, says);
}

TEST(TcpStore, SaysOnWhichSideASecretIsMissing) {
  Venue venue(ListenerKind::tcp4, 2);
  const auto server = venue.serve();
  Config trusting;
  trusting.trust_network = true;
  const Error here = error_of([&] { open(launch_of(1, 2, venue.place()), trusting); });
  EXPECT_EQ(here.kind(), ErrorKind::mismatch);
  EXPECT_THAT(here.what(), HasSubstr("has a secret and this rank has none"));
}

TEST(TcpStore, EncryptedNeedsASecretAndSaysWhatToDo) {
  Config trusting;
  trusting.trust_network = trusting.tls = true;
  for (const int rank : {0, 1}) {
    const Error error = error_of([&] { open(launch_of(rank, 2, free_place()), trusting); });
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("rank {}", rank)), HasSubstr("TUTTI_TLS"),
                                    HasSubstr("TUTTI_SECRET_FILE"), HasSubstr("openssl rand")));
  }
}

TEST(TcpStore, WhereOneEncryptsAndTheOtherDoesNotBothSayWhichAndWhatToDo) {
  for (const bool server_encrypts : {true, false}) {
    Config first = with_secret(), second = with_secret();
    (server_encrypts ? first : second).tls = true;
    const SocketAddress place = free_place();
    Child other([&] {
      const Error error = error_of([&] { open(launch_of(1, 2, place), second); });
      const std::string_view text = error.what();
      if (error.kind() != ErrorKind::mismatch) _exit(2);
      if (text.find("TUTTI_TLS=yes on all ranks") == text.npos) _exit(3);
      if (text.find(to_text(place)) == text.npos) _exit(4);
    });
    const auto store = open(launch_of(0, 2, place), first);
    const Error error = error_of([&] { store->get("what rank 1 never sets", in_time()); });
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 0: rank 1"), HasSubstr("TUTTI_TLS=yes on all ranks")));
    EXPECT_EQ(other.wait(), 0);
  }
}

TEST(TcpStore, NamesAddressRankAndReasonWhereNobodyListens) {
  const SocketAddress place = free_place();
  const Error error =
      error_of([&] { open(launch_of(1, 2, place), with_secret(), in(milliseconds(50))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr(to_text(place)),
                                  HasSubstr("refuses the connection"), HasSubstr("rank 0")));
}

TEST(TcpStore, NamesAHostThatNobodyKnows) {
  const SocketAddress nowhere{"no-such-host.invalid", 29'500};
  const Error error =
      error_of([&] { open(launch_of(1, 2, nowhere), with_secret(), in(milliseconds(300))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("no-such-host.invalid"));
}

TEST(TcpStore, SaysThatThePortIsInUseAndNamesIt) {
  const Fd other = net::listen_tcp({"127.0.0.1", 0});
  const SocketAddress place{"127.0.0.1", net::port_of(other)};
  const Error error = error_of([&] { open(launch_of(0, 2, place)); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(to_text(place)), HasSubstr("in use")));
}

TEST(TcpStore, SaysThatThePortIsAnotherProgramsWhereOneAnswers) {
  const Fd web = net::listen_tcp({"127.0.0.1", 0});
  const SocketAddress place{"127.0.0.1", net::port_of(web)};
  std::optional<Error> error;
  std::thread rank([&] { error = error_of([&] { open(launch_of(1, 2, place)); }); });
  pollfd called{web.get(), POLLIN, 0};
  poll(&called, 1, -1);
  const Fd accepted(accept(web.get(), nullptr, nullptr));
  const std::string reply = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nno\r\n";
  EXPECT_EQ(write(accepted.get(), reply.data(), reply.size()), static_cast<ssize_t>(reply.size()));
  rank.join();
  EXPECT_EQ(error->kind(), ErrorKind::unavailable);
  EXPECT_THAT(error->what(), HasSubstr("does not speak as tutti does"));
}

TEST(TcpStore, WaitsForAnAnswerNoLongerThanItsDeadline) {
  const Fd silent = net::listen_tcp({"127.0.0.1", 0});
  const SocketAddress place{"127.0.0.1", net::port_of(silent)};
  const Error error =
      error_of([&] { open(launch_of(1, 2, place), with_secret(), in(milliseconds(50))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("does not answer"));
}

TEST(TcpStore, RefusesARankOfAnotherJobOrSizeThatHasTheSameSecret) {
  Venue venue(ListenerKind::tcp4, 4);
  const auto server = venue.serve();
  JobAddress other_job = venue.job(), other_size = venue.job();
  other_job.job = "yesterday's";
  other_size.size = 8;
  SystemRandom random;
  for (const JobAddress& wrong : {other_job, other_size}) {
    const auto route = rendezvous::tcp_route(wrong, 1, {venue.place()}, Venue::secret(), random);
    const Error error = error_of([&] { join_by(*route, wrong, 1); });
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(), HasSubstr(wrong.size == 8 ? "4 ranks" : "another name"));
  }
}

TEST(TcpStore, RefusesASecondProcessWithOneRank) {
  Venue venue(ListenerKind::tcp4, 2);
  const auto server = venue.serve();
  const auto first = venue.join(1);
  const Error error = error_of([&] { venue.join(1); });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch);
  EXPECT_THAT(error.what(), HasSubstr("as rank 1 already"));
}

TEST(TcpStore, TriesEveryAddressAtWhichRank0MayBeAndPassesStrangersOver) {
  Venue venue(ListenerKind::tcp4, 2);
  const auto server = venue.serve();
  std::vector<Listener> listeners;
  listeners.push_back({net::listen_tcp({"127.0.0.1", 0}), Secret("of quite another job")});
  const SocketAddress strangers{"127.0.0.1", net::port_of(listeners.front().socket)};
  const StoreServer elsewhere(venue.job(), std::move(listeners));
  SystemRandom random;
  const auto route = rendezvous::tcp_route(venue.job(), 1, {free_place(), strangers, venue.place()},
                                           Venue::secret(), random);
  EXPECT_NO_THROW(join_by(*route, venue.job(), 1));
}

TEST(TcpStore, AtAllAddressesIsReachedByIpv4AndByIpv6) {
  const Fd anywhere = net::listen_tcp({"a-name-that-others-use.invalid", 0});
  for (const std::string host : {"127.0.0.1", "::1"}) {
    try {
      net::listen_tcp({host, 0});
    } catch (const Error&) {
      continue;  // this machine has no such address
    }
    const SocketAddress where{host, net::port_of(anywhere)};
    const auto found = net::find_places(where, in_time());
    EXPECT_TRUE(net::connect_tcp(found.places.front(), in_time()).socket) << host;
  }
}

TEST(OpenStore, OpensNoPortWhereAllRanksAreOnThisMachine) {
  LaunchEnvironment launch = launch_of(0, 2, {"localhost", free_place().port});
  launch.tcp_alone = false;
  const auto store = open(launch);
  const auto probe = net::connect_tcp(
      net::find_places({"127.0.0.1", launch.master_port}, in_time()).places.front(), in_time());
  EXPECT_FALSE(probe.socket);
}

std::string congestion_control(int socket) {
  std::array<char, 64> name{};
  socklen_t bytes = name.size() - 1;
  EXPECT_EQ(getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes), 0);
  return name.data();
}

// BBR paces its packets. On a system with another congestion control, nothing is changed.
TEST(TcpSocket, PacesOverNoShortLineAndOverALongOneAsTheSystemDoes) {
  const Fd plain(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string system = congestion_control(plain.get());
  const Fd listener = net::listen_tcp({"127.0.0.1", 0});
  const auto found = net::find_places({"127.0.0.1", net::port_of(listener)}, in_time());
  const auto connected = net::begin_tcp(found.places.at(0));
  pollfd ready{listener.get(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 10'000), 1);
  const Fd accepted(accept(listener.get(), nullptr, nullptr));
  for (const int end : {connected.socket.get(), accepted.get()}) {
    net::tune_data(end, std::chrono::microseconds(50));
    if (system.starts_with("bbr"))
      EXPECT_THAT(congestion_control(end), Not(StartsWith("bbr")));
    else
      EXPECT_EQ(congestion_control(end), system);
    net::tune_data(end, std::chrono::milliseconds(20));
    EXPECT_EQ(congestion_control(end), system);
  }
}

}  // namespace
}  // namespace tutti
