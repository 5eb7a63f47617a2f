// Stores that a process serves for whom it hands a ticket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/store/ticket.h"
#include "test_job.h"
#include "tests/net/slow_path.h"
#include "tests/runtime/processes.h"

namespace tutti {
namespace {

using rendezvous::decode_ticket;
using rendezvous::Ticket;
using testing::ElementsAre;
using testing::HasSubstr;

// No port is open to other machines.
Config on_loopback() {
  Config config;
  config.interfaces = "lo";
  return config;
}

std::shared_ptr<Store> connect(const std::string& ticket) {
  return connect_store(ticket, in_time(), on_loopback());
}

std::size_t threads() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

bool become(std::size_t count) {
  for (int waited = 0; waited < 10'000 && threads() > count; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads() <= count;
}

TEST(StoreTicket, HoldsWhatWasWrittenAndLeavesOutWhatDoesNotFit) {
  Ticket ticket{77, Secret("0123456789abcdef"), true, 29500, {"10.0.0.1", "fe80::1%eth0", "node7"}};
  for (int i = 0; i < 20; ++i) ticket.addresses.push_back("2001:db8::" + std::to_string(i + 1));
  const std::string bytes = rendezvous::encode(ticket);
  EXPECT_LE(bytes.size(), kMaxTicketBytes);
  const auto read = decode_ticket(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->server, 77u);
  EXPECT_EQ(read->secret.bytes(), "0123456789abcdef");
  EXPECT_TRUE(read->tls);
  EXPECT_EQ(read->port, 29500);
  EXPECT_THAT(read->addresses, ElementsAre("10.0.0.1", "2001:db8::1", "2001:db8::2", "2001:db8::3",
                                           "2001:db8::4", "2001:db8::5"));
}

TEST(StoreTicket, BytesThatAreNoneAreRefused) {
  const std::string good =
      rendezvous::encode({77, Secret("0123456789abcdef"), false, 29500, {"10.0.0.1"}});
  ASSERT_TRUE(decode_ticket(good));
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode_ticket(good.substr(0, length))) << length;
  EXPECT_FALSE(decode_ticket(good + "x"));
  EXPECT_FALSE(decode_ticket(std::string(kMaxTicketBytes + 1, '\1')));
  const Error error = error_of([] { connect("no ticket"); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_THAT(error.what(), HasSubstr("are no ticket"));
}

TEST(StoreTicket, LeadsToOneStoreWhichEndsWhenAllHaveLeft) {
  const std::size_t before = threads();
  const std::string ticket = serve_store(on_loopback());
  auto first = connect(ticket), second = connect(ticket);
  first->set("key", "value", in_time());
  EXPECT_EQ(second->get("key", in_time()), "value");
  first.reset();
  EXPECT_EQ(connect(ticket)->add("number", 2, in_time()), 2);  // One is still there.
  second.reset();
  EXPECT_TRUE(become(before));
  const Error error = error_of([&] { connect(ticket); });
  EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
  EXPECT_THAT(error.what(), HasSubstr("all that had connected have left"));
}

// The addresses of a ticket may be of machines that are out of reach for a while.
TEST(StoreTicket, OfAnotherMachineIsTriedUntilTheDeadline) {
  const std::string ticket =
      rendezvous::encode({77, Secret("0123456789abcdef"), false, 29500, {"192.0.2.1"}});
  const Error error = error_of(
      [&] { static_cast<void>(connect_store(ticket, in(milliseconds(50)), on_loopback())); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("has ended, or cannot be reached from here"));
}

// Where the Unix socket is out of reach, as on another machine, the secret counts.
TEST(StoreTicket, LeadsOverTcpWithItsSecretAlone) {
  const std::string ticket = serve_store(on_loopback());
  auto known = decode_ticket(ticket);
  ASSERT_TRUE(known);
  EXPECT_THAT(known->addresses, ElementsAre("127.0.0.1"));
  known->server += 1;
  const auto store = connect(rendezvous::encode(*known));
  store->set("key", "value", in_time());
  known->secret = Secret("fedcba9876543210");
  const Error error = error_of([&] { connect(rendezvous::encode(*known)); });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch);
  EXPECT_THAT(error.what(), HasSubstr("secret"));
}

TEST(StoreTicket, ThatUsesTlsIsRefusedWithout) {
  Config config = on_loopback();
  config.tls = true;
  const std::string ticket = serve_store(config);
  const Error error = error_of([&] { connect(ticket); });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch);
  EXPECT_THAT(error.what(), HasSubstr("TUTTI_TLS"));
  auto known = decode_ticket(ticket);
  known->server += 1;
  connect_store(rendezvous::encode(*known), in_time(), config)->set("key", "value", in_time());
}

Config with_secret(std::string secret) {
  Config config = on_loopback();
  config.secret = std::move(secret);
  return config;
}

// A client may come before the server does, and a second server is not needed.
TEST(StoreTicket, OfAKnownAddressIsTheSameInAllProcessesThatHaveTheSecret) {
  const Config config = with_secret("what only these know");
  const std::string address = "127.0.0.1:" + std::to_string(test::unused_port());
  const std::string ticket = ticket_at(address, in_time(), config);
  EXPECT_EQ(ticket_at(address, in_time(), config), ticket);
  EXPECT_NE(ticket_at(address, in_time(), with_secret("what others think of")), ticket);
  std::thread early(
      [&] { connect_store(ticket, in_time(), config)->set("key", "value", in_time()); });
  std::this_thread::sleep_for(milliseconds(20));
  serve_store_at(ticket, config);
  const auto store = connect_store(ticket, in_time(), config);
  serve_store_at(ticket, config);
  EXPECT_EQ(connect_store(ticket, in_time(), config)->get("key", in_time()), "value");
  early.join();
  auto over_tcp = decode_ticket(ticket);
  ASSERT_TRUE(over_tcp);
  over_tcp->server += 2;
  EXPECT_EQ(connect_store(rendezvous::encode(*over_tcp), in_time(), config)->get("key", in_time()),
            "value");
}

TEST(StoreTicket, OfAKnownAddressNeedsASecretBetweenMachines) {
  const std::string here = ticket_at("127.0.0.1:29500", in_time(), on_loopback());
  EXPECT_THAT(decode_ticket(here)->addresses, testing::IsEmpty());
  for (const char* text : {"node7", "node7:", "node7:0", "node7:65536", ":29500", ""})
    EXPECT_THAT(
        error_of([&] { static_cast<void>(ticket_at(text, in_time(), on_loopback())); }).what(),
        HasSubstr("is no address of a store"))
        << text;
  const auto refused = [](const char* address, const Config& config) {
    const Error error = error_of([&] { static_cast<void>(ticket_at(address, in_time(), config)); });
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("needs a secret"));
  };
  refused("192.0.2.1:29500", on_loopback());
  Config config = on_loopback();
  config.trust_network = true;
  EXPECT_THAT(decode_ticket(ticket_at("192.0.2.1:29500", in_time(), config))->addresses,
              ElementsAre("192.0.2.1"));
  config.tls = true;
  refused("127.0.0.1:29500", config);
}

TEST(StoreTicket, OfAKnownAddressIsNamedByIt) {
  const std::string port = std::to_string(test::unused_port());
  for (const Config& config : {on_loopback(), with_secret("what only these know")}) {
    const std::string ticket = ticket_at("127.0.0.1:" + port, in_time(), config);
    const Error error =
        error_of([&] { static_cast<void>(connect_store(ticket, in(milliseconds(20)), config)); });
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr("at port " + port + " of this machine"),
                                             HasSubstr("at 127.0.0.1:" + port)));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("''")));
  }
}

// Serves a store that processes reach through a slow path alone.
struct FarStore {
  explicit FarStore(test::SlowPath::Clock::duration delay)
      : its(*decode_ticket(serve_store(on_loopback()))), path(its.port, delay) {
    its.server += 1;
    its.port = path.port();
    its.comes_first = true;  // lest a client conclude that it has ended, which is of this machine
  }
  std::string ticket() const { return rendezvous::encode(its); }

  Ticket its;
  test::SlowPath path;
};

TEST(StoreTicket, LeadsToAStoreFarAway) {
  const FarStore far(milliseconds(100));
  const Unless unless{{"lost"}, [] { return false; }};
  const auto store = connect_store(far.ticket(), in_time(), on_loopback(), unless.given_up);
  store->set("key", "value", in_time());
  EXPECT_EQ(store->get_unless("key", unless, in_time()), "value");
}

// The store, whose answers take an hour, is not reached, and nothing but the question ends it.
TEST(StoreTicket, IsGivenUpWhileTheStoreDoesNotAnswer) {
  const FarStore far(std::chrono::hours(1));
  int asked = 0;
  const Error error = error_of([&] {
    static_cast<void>(
        connect_store(far.ticket(), in_time(), on_loopback(), [&] { return ++asked > 2; }));
  });
  EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
  EXPECT_THAT(error.what(), HasSubstr("has given up joining the store at 127.0.0.1:"));
  EXPECT_THAT(error.what(), HasSubstr("does not answer"));
}

// Connects to a store once the server that stood by has taken the place of the first one.
std::shared_ptr<Store> once_served(const std::string& ticket) {
  for (;;) {  // The watchdog bounds it.
    try {
      return connect(ticket);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::peer_lost) throw;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
}

// One that is not in the process of the server stands by for it, and newcomers find it.
TEST(StoreTicket, OutlivesTheProcessThatServesIt) {
  int ticket_pipe[2], done_pipe[2];
  ASSERT_EQ(pipe(ticket_pipe), 0);
  ASSERT_EQ(pipe(done_pipe), 0);
  test::Processes processes(2, [&](int number) {
    std::string ticket(kMaxTicketBytes, '\0');
    char byte = 0;
    if (number == 0) {
      ticket = serve_store(on_loopback());
      const auto store = connect(ticket);
      static_cast<void>(write(ticket_pipe[1], ticket.data(), ticket.size()));
      store->wait("it stands by", in_time());
      _exit(0);
    }
    ticket.resize(static_cast<std::size_t>(read(ticket_pipe[0], ticket.data(), ticket.size())));
    const auto store = connect(ticket), other = connect(ticket);
    store->set("key", "value", in_time());
    store->wait("tutti/standby/newcomer", in_time());
    store->set("it stands by", "", in_time());
    close(done_pipe[1]);
    static_cast<void>(read(done_pipe[0], &byte, 1));  // ends when the server's process has
    if (other->get("key", in_time()) != "value") throw std::runtime_error("the store is another");
    if (once_served(ticket)->get("key", in_time()) != "value")
      throw std::runtime_error("the ticket leads to another store");
  });
  close(done_pipe[1]);
  processes.outcome(0);
  EXPECT_EQ(processes.outcome(1), "");
}

}  // namespace
}  // namespace tutti
