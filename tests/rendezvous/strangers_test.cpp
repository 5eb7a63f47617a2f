// Tests that connections to a store's server that are not from a rank of its job do not disturb the
// job, with each kind of listener.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/random.h"
#include "stranger.h"
#include "test_job.h"

namespace tutti {
namespace {

using rendezvous::Answer;
using rendezvous::Greeting;
using rendezvous::Reply;
using rendezvous::Request;
using rendezvous::Status;
using rendezvous::Verb;
using rendezvous::Verdict;
using testing::HasSubstr;

ServerLimits with_greeting_limit(milliseconds limit) {
  ServerLimits limits;
  limits.greeting = limit;
  return limits;
}

void expect_that_it_works(const Venue& venue, int first_rank) {
  const auto one = venue.join(first_rank), other = venue.join(first_rank + 1);
  one->set("works", "yes", in_time());
  EXPECT_EQ(other->get("works", in_time()), "yes");
}

std::string random_bytes(SeededRandom& random, std::size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.next());
  return bytes;
}

class AStoreServer : public AtAnyListener {};
INSTANTIATE_TEST_SUITE_P(All, AStoreServer, kAllListeners, listener_name);

TEST_P(AStoreServer, CutsAConnectionThatNeverSpeaks) {
  Venue venue(GetParam(), 2);
  const auto server = venue.serve(with_greeting_limit(milliseconds(20)));
  Stranger silent(venue), half(venue);
  const std::string words = Stranger::first_words(venue, 0);
  half.say(std::string_view(words).substr(0, words.size() - 1));
  silent.expect_cut();
  half.expect_cut();
  expect_that_it_works(venue, 0);
}

TEST_P(AStoreServer, ServesItsRanksWhileAHalfOpenConnectionStaysSilent) {
  Venue venue(GetParam(), 2);
  const auto server = venue.serve(with_greeting_limit(seconds(3600)));
  const Stranger silent(venue);
  expect_that_it_works(venue, 0);
}

TEST_P(AStoreServer, IsNotDisturbedByAConnectionThatSendsGarbage) {
  Venue venue(GetParam(), 400);
  const auto server = venue.serve(with_greeting_limit(milliseconds(200)));
  SeededRandom random(4711);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (std::size_t i = 0; i < 100; ++i) {
    strangers.push_back(std::make_unique<Stranger>(venue));
    strangers.back()->say(random_bytes(random, i * 7));
  }
  expect_that_it_works(venue, 0);
  for (const auto& stranger : strangers) stranger->expect_cut();
  expect_that_it_works(venue, 2);
}

TEST_P(AStoreServer, CutsARankThatSendsGarbageAfterItsGreetingAndServesTheOthers) {
  Venue venue(GetParam(), 100);
  const auto server = venue.serve();
  SeededRandom random(815);
  for (int rank = 2; rank < 100; ++rank) {
    Stranger mad(venue);
    mad.pass(venue, rank).say_struct(Stranger::greeting(venue.job(), rank));
    EXPECT_EQ(mad.hear<Answer>().verdict, Verdict::welcome);
    Request request;
    request.verb = static_cast<Verb>(5 + random.next() % 1000);  // `forget` or an unknown verb
    request.key_bytes = static_cast<std::uint32_t>(random.next());
    mad.say_struct(request);
    mad.say(random_bytes(random, 200));
    mad.expect_cut();
  }
  expect_that_it_works(venue, 0);
}

TEST_P(AStoreServer, TakesNoMemoryForALengthBeyondTheLimits) {
  Venue venue(GetParam(), 3);
  const auto server = venue.serve();
  Stranger greedy(venue);
  greedy.pass(venue, 2).say_struct(Stranger::greeting(venue.job(), 2));
  greedy.hear<Answer>();
  greedy.say_struct(Request{1, Verb::set, 1, 0xffffffff, 0});
  greedy.expect_cut();
  expect_that_it_works(venue, 0);
}

TEST_P(AStoreServer, CutsTheOldestOfAFloodOfSilentConnections) {
  Venue venue(GetParam(), 2);
  ServerLimits limits = with_greeting_limit(seconds(3600));
  limits.unauthenticated = 8;
  const auto server = venue.serve(limits);
  std::vector<std::unique_ptr<Stranger>> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(std::make_unique<Stranger>(venue));
  expect_that_it_works(venue, 0);
  const std::size_t kept = limits.unauthenticated + 2;  // the job has two ranks
  for (std::size_t i = 0; i < flood.size() - kept; ++i) flood[i]->expect_cut();
}

TEST_P(AStoreServer, MakesRoomForRanksWhenStrangersHoldAllItsDescriptors) {
  Venue venue(GetParam(), 2);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  Child host([&] {
    const rlimit few{40, 40};
    setrlimit(RLIMIT_NOFILE, &few);
    const auto server = venue.serve(with_greeting_limit(seconds(3600)));
    static_cast<void>(!write(ready[1], "r", 1));
    pause();
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  std::vector<std::unique_ptr<Stranger>> flood;
  for (int i = 0; i < 60; ++i) flood.push_back(std::make_unique<Stranger>(venue));
  expect_that_it_works(venue, 0);
  host.end(SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

TEST_P(AStoreServer, AnswersAGreetingThatComesByteByByte) {
  Venue venue(GetParam(), 2);
  const auto server = venue.serve();
  Stranger slow(venue);
  const Greeting greeting = Stranger::greeting(venue.job(), 1);
  slow.pass(venue, 1);
  for (const char byte : bytes_of(greeting)) slow.say({&byte, 1});
  EXPECT_EQ(slow.hear<Answer>().verdict, Verdict::welcome);
  const Request request{7, Verb::add, 1, 2, 0};
  std::string message(bytes_of(request));
  message += "k42";
  for (const char byte : message) slow.say({&byte, 1});
  const Reply reply = slow.hear<Reply>();
  EXPECT_EQ(reply.id, 7u);
  EXPECT_EQ(reply.status, Status::ok);
}

TEST_P(AStoreServer, DoesWhatARankAskedForBeforeItLeft) {
  Venue venue(GetParam(), 2);
  const auto server = venue.serve();
  {
    Stranger hasty(venue);
    hasty.pass(venue, 1).say_struct(Stranger::greeting(venue.job(), 1));
    EXPECT_EQ(hasty.hear<Answer>().verdict, Verdict::welcome);
    hasty.say_struct(Request{1, Verb::set, 4, 4, 0});
    hasty.say("lastword");
  }
  EXPECT_EQ(venue.join(0)->get("last", in_time()), "word");
}

TEST_P(AStoreServer, RefusesAnotherProtocolVersion) {
  Venue venue(GetParam(), 2);
  const auto server = venue.serve();
  Stranger newer(venue);
  Greeting greeting = Stranger::greeting(venue.job(), 1);
  greeting.version = 99;
  newer.pass(venue, 1).say_struct(greeting);
  EXPECT_EQ(newer.hear<Answer>().verdict, Verdict::other_version);
  newer.expect_cut();
  expect_that_it_works(venue, 0);
}

TEST_P(AStoreServer, RefusesARankThatTheJobDoesNotHave) {
  Venue venue(GetParam(), 2);
  const auto server = venue.serve();
  Stranger beyond(venue);
  beyond.pass(venue, 2).say_struct(Stranger::greeting(venue.job(), 2));
  EXPECT_EQ(beyond.hear<Answer>().verdict, Verdict::other_size);
  expect_that_it_works(venue, 0);
}

class ATcpStoreServer : public AtAnyListener {};
INSTANTIATE_TEST_SUITE_P(All, ATcpStoreServer,
                         testing::Values(ListenerKind::tcp4, ListenerKind::tcp6, ListenerKind::tls),
                         listener_name);

TEST_P(ATcpStoreServer, ParsesNoGreetingOfWhoHasNotProvedThatHeKnowsTheSecret) {
  Venue venue(GetParam(), 3);
  const auto server = venue.serve();
  Stranger hasty(venue);
  hasty.say_struct(Stranger::greeting(venue.job(), 2));  // This is correct at a Unix socket.
  hasty.say(std::string(sizeof(net::AuthHello), 'x'));
  hasty.expect_cut();
  expect_that_it_works(venue, 0);
}

TEST_P(ATcpStoreServer, CutsWhoAnswersItsChallengeWithAnotherSecretsProof) {
  Venue venue(GetParam(), 3);
  const auto server = venue.serve();
  for (int i = 0; i < 50; ++i) {
    Stranger liar(venue);
    liar.say_struct(net::AuthHello{});
    liar.hear<net::AuthChallenge>();
    liar.say_struct(net::AuthProof{});
    EXPECT_EQ(liar.hear<net::AuthResult>().verdict, net::AuthVerdict::wrong_secret);
    liar.expect_cut();
  }
  expect_that_it_works(venue, 0);
}

TEST_P(ATcpStoreServer, CutsARankThatGreetsAsAnotherThanItProvedToBe) {
  Venue venue(GetParam(), 4);
  const auto server = venue.serve();
  Stranger turncoat(venue);
  turncoat.pass(venue, 2).say_struct(Stranger::greeting(venue.job(), 3));
  turncoat.expect_cut();
  EXPECT_NO_THROW(venue.join(2));
  EXPECT_NO_THROW(venue.join(3));
}

// A rank may be slow, for example because there are more ranks than cores.
TEST_P(ATcpStoreServer, CutsNobodyWhoHasProvedThatHeKnowsTheSecretForAFloodOrForBeingSlow) {
  for (const bool flooded : {true, false}) {
    Venue venue(GetParam(), 2);
    ServerLimits limits = with_greeting_limit(flooded ? seconds(3600) : seconds(1));
    limits.unauthenticated = 8;
    const auto server = venue.serve(limits);
    Stranger rank(venue);
    rank.pass(venue, 1);
    std::vector<std::unique_ptr<Stranger>> others;
    for (int i = 0; i < (flooded ? 30 : 4); ++i)
      others.push_back(std::make_unique<Stranger>(venue));
    // The oldest are closed first, and the rank is older than all of these.
    for (std::size_t i = 0; i < (flooded ? 15 : 4); ++i) others[i]->expect_cut();
    rank.say_struct(Stranger::greeting(venue.job(), 1));
    EXPECT_EQ(rank.hear<Answer>().verdict, Verdict::welcome);
    EXPECT_NO_THROW(venue.join(0));
  }
}

TEST_P(ATcpStoreServer, CutsOneThatSpeaksTooSlowlyThoughItNeverStops) {
  Venue venue(GetParam(), 2);
  const auto server = venue.serve(with_greeting_limit(milliseconds(100)));
  Stranger slow(venue);
  const net::AuthHello hello;
  for (const char byte : bytes_of(hello)) {
    slow.say({&byte, 1});
    std::this_thread::sleep_for(milliseconds(2));  // the delay that is tested
  }
  slow.expect_cut();
  expect_that_it_works(venue, 0);
}

TEST_P(ATcpStoreServer, ServesItsRanksWhileAPortScannerComesAndGoes) {
  Venue venue(GetParam(), 2);
  const auto server = venue.serve();
  for (int i = 0; i < 300; ++i) {
    const Fd scanner = venue.connect();
    const linger reset{1, 0};  // close() then resets the connection, as some scanners do
    if (i % 2 == 0) setsockopt(scanner.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  expect_that_it_works(venue, 0);
}

TEST(StoreServer, LetsNobodyInButTheUserItIsFor) {
  const JobAddress job = job_of(2);
  ServerLimits limits;
  limits.uid = geteuid() + 1;
  const StoreServer server(job, at_unix_socket(job), limits);
  const Error error = error_of([&] { join(job, 1, in(milliseconds(50))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("closed the connection"));
}

TEST_P(AStoreServer, TakesNoMoreRequestsThanItHasRoomForReplies) {
  constexpr std::size_t kValue = 1 << 20, kRequests = 200;
  constexpr long kMostKiB = 64 << 10;
  Venue venue(GetParam(), 2);
  const auto server = venue.serve(ServerLimits{});
  const auto other = venue.join(1);
  other->set("large", std::string(kValue, 'x'), in_time());
  const auto most_memory = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before = most_memory();
  const auto route = venue.route(0);
  rendezvous::Joined greedy = join_by(*route, venue.job(), 0);
  for (std::size_t id = 1; id <= kRequests; ++id) {
    greedy.connection.queue(bytes_of(Request{id, Verb::get, 5, 0, 0, 0}));
    greedy.connection.queue("large");
  }
  const auto deadline = in_time();
  std::size_t received = 0;
  while (received < kRequests * (sizeof(Reply) + kValue) &&
         std::chrono::steady_clock::now() < deadline) {
    pollfd readable{greedy.connection.fd(), POLLIN, 0};
    poll(&readable, 1, 10);
    ASSERT_TRUE(greedy.connection.flush() && greedy.connection.receive(kValue));
    received += greedy.connection.received().size();
    greedy.connection.consume(greedy.connection.received().size());
  }
  EXPECT_EQ(received, kRequests * (sizeof(Reply) + kValue));
  EXPECT_LT(most_memory() - before, kMostKiB);
}

// The reply to another's request is the last that waits for room, and finds some in the socket.
TEST(StoreServer, TakesTheRequestsThatHadNoRoomAlthoughTheirSenderSendsNoMore) {
  constexpr std::size_t kValue = 8 << 10, kRequests = 100, kSome = 48 << 10;
  Venue venue(ListenerKind::unix_socket, 2);
  ServerLimits limits;
  limits.unsent = 1 << 10;
  const auto server = venue.serve(limits);
  const auto other = venue.join(1);
  other->set("large", std::string(kValue, 'x'), in_time());
  rendezvous::Joined slow = join_by(*venue.route(0), venue.job(), 0);
  slow.connection.queue(bytes_of(Request{1, Verb::wait, 6, 0, 0, 0}));
  slow.connection.queue("signal");
  for (std::size_t id = 2; id <= kRequests; ++id) {
    slow.connection.queue(bytes_of(Request{id, Verb::get, 5, 0, 0, 0}));
    slow.connection.queue("large");
  }
  ASSERT_TRUE(slow.connection.flush() && slow.connection.queued_bytes() == 0);
  other->set("behind them", "", in_time());
  std::size_t received = 0;
  const auto receive = [&] {
    pollfd readable{slow.connection.fd(), POLLIN, 0};
    if (poll(&readable, 1, 5000) != 1 || !slow.connection.receive(kValue)) return false;
    received += slow.connection.received().size();
    slow.connection.consume(slow.connection.received().size());
    return true;
  };
  while (received < kSome) ASSERT_TRUE(receive());
  other->set("signal", "", in_time());
  constexpr std::size_t kAll = kRequests * sizeof(Reply) + (kRequests - 1) * kValue;
  while (received < kAll && receive()) {
  }
  EXPECT_EQ(received, kAll);
}

}  // namespace
}  // namespace tutti
