// Whoever connects to a store's server and is not a rank of its job must not disturb the job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
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

void expect_that_it_works(const JobAddress& job, int first_rank) {
  const auto one = join(job, first_rank), other = join(job, first_rank + 1);
  one->set("works", "yes", in_time());
  EXPECT_EQ(other->get("works", in_time()), "yes");
}

std::string random_bytes(SeededRandom& random, std::size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.next());
  return bytes;
}

TEST(StoreServer, CutsAConnectionThatNeverSpeaks) {
  const JobAddress job = job_of(2);
  const StoreServer server(job, with_greeting_limit(milliseconds(20)));
  Stranger silent(job), half(job);
  half.say(rendezvous::bytes_of(Stranger::greeting(job, 0)).substr(0, 31));
  silent.expect_cut();
  half.expect_cut();
  expect_that_it_works(job, 0);
}

TEST(StoreServer, ServesItsRanksWhileAHalfOpenConnectionStaysSilent) {
  const JobAddress job = job_of(2);
  const StoreServer server(job, with_greeting_limit(seconds(3600)));
  const Stranger silent(job);
  expect_that_it_works(job, 0);
}

TEST(StoreServer, IsNotDisturbedByAConnectionThatSendsGarbage) {
  const JobAddress job = job_of(400);
  const StoreServer server(job, with_greeting_limit(milliseconds(200)));
  SeededRandom random(4711);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (std::size_t i = 0; i < 100; ++i) {
    strangers.push_back(std::make_unique<Stranger>(job));
    strangers.back()->say(random_bytes(random, i * 7));
  }
  expect_that_it_works(job, 0);
  for (const auto& stranger : strangers) stranger->expect_cut();
  expect_that_it_works(job, 2);
}

TEST(StoreServer, CutsARankThatSendsGarbageAfterItsGreetingAndServesTheOthers) {
  const JobAddress job = job_of(100);
  const StoreServer server(job);
  SeededRandom random(815);
  for (int rank = 2; rank < 100; ++rank) {
    Stranger mad(job);
    mad.say_struct(Stranger::greeting(job, rank));
    EXPECT_EQ(mad.hear<Answer>().verdict, Verdict::welcome);
    Request request;
    request.verb = static_cast<Verb>(5 + random.next() % 1000);  // forget, or nothing known
    request.key_bytes = static_cast<std::uint32_t>(random.next());
    mad.say_struct(request);
    mad.say(random_bytes(random, 200));
    mad.expect_cut();
  }
  expect_that_it_works(job, 0);
}

TEST(StoreServer, TakesNoMemoryForALengthBeyondTheLimits) {
  const JobAddress job = job_of(3);
  const StoreServer server(job);
  Stranger greedy(job);
  greedy.say_struct(Stranger::greeting(job, 2));
  greedy.hear<Answer>();
  greedy.say_struct(Request{1, Verb::set, 1, 0xffffffff, 0});
  greedy.expect_cut();
  expect_that_it_works(job, 0);
}

TEST(StoreServer, CutsTheOldestOfAFloodOfSilentConnections) {
  const JobAddress job = job_of(2);
  ServerLimits limits = with_greeting_limit(seconds(3600));
  limits.strangers = 8;
  const StoreServer server(job, limits);
  std::vector<std::unique_ptr<Stranger>> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(std::make_unique<Stranger>(job));
  expect_that_it_works(job, 0);
  for (std::size_t i = 0; i < flood.size() - limits.strangers; ++i) flood[i]->expect_cut();
}

TEST(StoreServer, MakesRoomForRanksWhenStrangersHoldAllItsDescriptors) {
  const JobAddress job = job_of(2);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  Child host([&] {
    const rlimit few{40, 40};
    setrlimit(RLIMIT_NOFILE, &few);
    const StoreServer server(job, with_greeting_limit(seconds(3600)));
    static_cast<void>(!write(ready[1], "r", 1));
    pause();
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  std::vector<std::unique_ptr<Stranger>> flood;
  for (int i = 0; i < 60; ++i) flood.push_back(std::make_unique<Stranger>(job));
  expect_that_it_works(job, 0);
  host.end(SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

TEST(StoreServer, AnswersAGreetingThatComesByteByByte) {
  const JobAddress job = job_of(2);
  const StoreServer server(job);
  Stranger slow(job);
  const Greeting greeting = Stranger::greeting(job, 1);
  for (const char byte : rendezvous::bytes_of(greeting)) slow.say({&byte, 1});
  EXPECT_EQ(slow.hear<Answer>().verdict, Verdict::welcome);
  const Request request{7, Verb::add, 1, 2, 0};
  std::string message(rendezvous::bytes_of(request));
  message += "k42";
  for (const char byte : message) slow.say({&byte, 1});
  const Reply reply = slow.hear<Reply>();
  EXPECT_EQ(reply.id, 7u);
  EXPECT_EQ(reply.status, Status::ok);
}

TEST(StoreServer, DoesWhatARankAskedForBeforeItLeft) {
  const JobAddress job = job_of(2);
  const StoreServer server(job);
  {
    Stranger hasty(job);
    hasty.say_struct(Stranger::greeting(job, 1));
    EXPECT_EQ(hasty.hear<Answer>().verdict, Verdict::welcome);
    hasty.say_struct(Request{1, Verb::set, 4, 4, 0});
    hasty.say("lastword");
  }
  EXPECT_EQ(join(job, 0)->get("last", in_time()), "word");
}

TEST(StoreServer, RefusesAnotherProtocolVersion) {
  const JobAddress job = job_of(2);
  const StoreServer server(job);
  Stranger newer(job);
  Greeting greeting = Stranger::greeting(job, 1);
  greeting.version = 99;
  newer.say_struct(greeting);
  EXPECT_EQ(newer.hear<Answer>().verdict, Verdict::other_version);
  newer.expect_cut();
  expect_that_it_works(job, 0);
}

TEST(StoreServer, RefusesARankThatTheJobDoesNotHave) {
  const JobAddress job = job_of(2);
  const StoreServer server(job);
  Stranger beyond(job);
  beyond.say_struct(Stranger::greeting(job, 2));
  EXPECT_EQ(beyond.hear<Answer>().verdict, Verdict::other_size);
  expect_that_it_works(job, 0);
}

TEST(StoreServer, LetsNobodyInButTheUserItIsFor) {
  const JobAddress job = job_of(2);
  ServerLimits limits;
  limits.uid = geteuid() + 1;
  const StoreServer server(job, limits);
  const Error error = error_of([&] { join(job, 1, in(milliseconds(50))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.what(), HasSubstr("closed the connection"));
}

}  // namespace
}  // namespace tutti
