// Tests of the authentication handshake: the state machines of both ends, without sockets.
#include "net/authentication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/random.h"

namespace tutti::net {
namespace {

using testing::HasSubstr;
using testing::Not;

const Secret& secret() {
  static const Secret secret("0123456789abcdef");
  return secret;
}

Claim claim() { return {Claim::Purpose::data, 3, 5, 0x4711}; }

/// An initiator and an acceptor, and the bytes on their way to each.
struct Ends {
  SeededRandom random{1};
  AuthInitiator initiator;
  AuthAcceptor acceptor;
  std::string to_acceptor, to_initiator;

  Ends(const Secret& first, const Claim& claimed, const Secret& second, const Claim& expected)
      : initiator(first, claimed, random), acceptor(second, expected, random) {}
  Ends() : Ends(secret(), claim(), secret(), claim()) {}

  void advance_initiator() {
    std::string_view input = to_initiator;
    initiator_state = initiator.advance(input, to_acceptor);
    to_initiator.erase(0, to_initiator.size() - input.size());
  }
  void advance_acceptor() {
    std::string_view input = to_acceptor;
    acceptor_state = acceptor.advance(input, to_initiator);
    to_acceptor.erase(0, to_acceptor.size() - input.size());
  }
  /// Runs both until neither sends anything more.
  Ends& run() {
    for (int turn = 0; turn < 3; ++turn) {
      advance_initiator();
      advance_acceptor();
    }
    return *this;
  }
  bool both_done() const {
    return initiator_state == AuthInitiator::State::done &&
           acceptor_state == AuthAcceptor::State::done;
  }
  bool neither_done() const {
    return initiator_state != AuthInitiator::State::done &&
           acceptor_state != AuthAcceptor::State::done;
  }

  AuthInitiator::State initiator_state = AuthInitiator::State::begin;
  AuthAcceptor::State acceptor_state = AuthAcceptor::State::hello;
};

TEST(Authentication, LetsInWhoKnowsTheSecretAndLeavesTheBytesBehindTheHandshakeAlone) {
  Ends ends;
  ends.advance_initiator();
  ends.advance_acceptor();
  ends.advance_initiator();
  ends.to_acceptor += "first request";
  ends.advance_acceptor();
  ends.to_initiator += "first reply";
  ends.advance_initiator();
  EXPECT_TRUE(ends.both_done());
  EXPECT_EQ(ends.to_acceptor, "first request");
  EXPECT_EQ(ends.to_initiator, "first reply");
  EXPECT_EQ(ends.acceptor.initiator(), 3u);
}

TEST(Authentication, WorksByteByByte) {
  Ends ends;
  for (int turn = 0; turn < 500 && !ends.both_done(); ++turn) {
    ends.advance_initiator();
    std::string wire;
    wire.swap(ends.to_acceptor);
    for (const char byte : wire) {
      ends.to_acceptor += byte;
      ends.advance_acceptor();
    }
  }
  EXPECT_TRUE(ends.both_done());
}

TEST(Authentication, NeverSendsTheSecret) {
  Ends ends;
  std::string wire;
  for (int turn = 0; turn < 3; ++turn) {
    ends.advance_initiator();
    wire += ends.to_acceptor;
    ends.advance_acceptor();
    wire += ends.to_initiator;
  }
  EXPECT_TRUE(ends.both_done());
  EXPECT_THAT(wire, Not(HasSubstr(std::string(secret().bytes().substr(0, 8)))));
}

TEST(Authentication, GivesNothingMadeWithTheSecretToWhoHasNotProvedThatHeKnowsIt) {
  SeededRandom random(2);
  AuthAcceptor acceptor(secret(), claim(), random);
  AuthHello hello;
  std::string said(bytes_of(hello)), answer;
  said += std::string(sizeof(AuthProof), 'x');
  std::string_view input = said;
  EXPECT_EQ(acceptor.advance(input, answer), AuthAcceptor::State::failed);
  ASSERT_EQ(answer.size(), sizeof(AuthChallenge) + sizeof(AuthResult));
  const auto result =
      fixed_part<AuthResult>(std::string_view(answer).substr(sizeof(AuthChallenge)));
  EXPECT_EQ(result->verdict, AuthVerdict::wrong_secret);
  EXPECT_EQ(result->proof, Proof{});
}

TEST(Authentication, RefusesAnotherSecretOnBothSides) {
  Ends ends(secret(), claim(), Secret("fedcba9876543210"), claim());
  EXPECT_TRUE(ends.run().neither_done());
  EXPECT_EQ(ends.acceptor_state, AuthAcceptor::State::failed);
  EXPECT_EQ(ends.initiator.failure(), AuthFailure::wrong_secret);
  // Where it was given none, a rank may prove itself with one that was drawn for the connection.
  EXPECT_THAT(describe(ends.initiator.failure()),
              HasSubstr("another secret than this rank, or none"));
}

TEST(Authentication, IsNotTalkedOutOfASecretByAnEndThatHasNone) {
  Ends trusting_acceptor(secret(), claim(), Secret(), claim());
  EXPECT_TRUE(trusting_acceptor.run().neither_done());
  EXPECT_EQ(trusting_acceptor.initiator.failure(), AuthFailure::no_secret_there);
  EXPECT_THAT(describe(trusting_acceptor.initiator.failure()), Not(HasSubstr("trusts")));
  Ends trusting_initiator(Secret(), claim(), secret(), claim());
  EXPECT_TRUE(trusting_initiator.run().neither_done());
  EXPECT_EQ(trusting_initiator.initiator.failure(), AuthFailure::no_secret_here);
}

TEST(Authentication, TakesTwoEndsThatTrustTheNetwork) {
  EXPECT_TRUE(Ends(Secret(), claim(), Secret(), claim()).run().both_done());
}

// Without a secret anybody could derive the keys, since all other inputs went over the network.
TEST(Authentication, RefusesAtEitherEndToEncryptWithKeysOfNoSecret) {
  Claim encrypted = claim();
  encrypted.tls = true;
  Ends ends(Secret(), encrypted, Secret(), encrypted);
  EXPECT_TRUE(ends.run().neither_done());
  EXPECT_EQ(ends.initiator_state, AuthInitiator::State::failed);
  EXPECT_EQ(ends.initiator.failure(), AuthFailure::no_tls_key);
  EXPECT_TRUE(ends.to_acceptor.empty()) << "it speaks to an end that could be anybody's";

  SeededRandom random(7);
  AuthAcceptor acceptor(Secret(), encrypted, random);
  AuthHello hello;
  hello.tls = 1;
  std::string answer;
  std::string_view input = bytes_of(hello);
  EXPECT_EQ(acceptor.advance(input, answer), AuthAcceptor::State::failed);
  EXPECT_TRUE(answer.empty());
}

TEST(Authentication, RefusesAnotherJobRankOrPurposeAndSaysWhich) {
  Claim other_job = claim(), other_rank = claim(), other_purpose = claim(), other_self = claim();
  other_job.job = 1;
  other_rank.acceptor = 6;
  other_purpose.purpose = Claim::Purpose::store;
  other_self.initiator = 9;
  const auto failure_of = [](const Claim& claimed) {
    Ends ends(secret(), claimed, secret(), claim());
    EXPECT_TRUE(ends.run().neither_done());
    return ends.initiator.failure();
  };
  EXPECT_EQ(failure_of(other_job), AuthFailure::other_job);
  EXPECT_EQ(failure_of(other_rank), AuthFailure::other_place);
  EXPECT_EQ(failure_of(other_purpose), AuthFailure::other_place);
  EXPECT_TRUE(Ends(secret(), other_self, secret(), claim()).run().both_done())
      << "an acceptor takes any initiator: its owner knows which ranks there are";
}

TEST(Authentication, RefusesAHandshakeOfWhichAnyByteWasChanged) {
  std::size_t flights[] = {sizeof(AuthHello), sizeof(AuthChallenge), sizeof(AuthProof),
                           sizeof(AuthResult)};
  for (std::size_t flight = 0; flight < 4; ++flight)
    for (std::size_t byte = 0; byte < flights[flight]; ++byte) {
      Ends ends;
      for (std::size_t turn = 0; turn < 6; ++turn) {
        turn % 2 == 0 ? ends.advance_initiator() : ends.advance_acceptor();
        if (turn != flight) continue;
        std::string& wire = turn % 2 == 0 ? ends.to_acceptor : ends.to_initiator;
        ASSERT_EQ(wire.size(), flights[flight]);
        wire[byte] = static_cast<char>(wire[byte] ^ 0x40);
      }
      EXPECT_NE(ends.initiator_state, AuthInitiator::State::done)
          << "byte " << byte << " of flight " << flight;
    }
}

TEST(Authentication, TakesNoProofThatServedAnEarlierConnection) {
  Ends first;
  first.advance_initiator();
  const std::string hello = first.to_acceptor;
  first.advance_acceptor();
  first.advance_initiator();
  const std::string proof = first.to_acceptor;
  SeededRandom random(3);
  AuthAcceptor acceptor(secret(), claim(), random);
  std::string answer;
  const std::string said = hello + proof;
  std::string_view input = said;
  EXPECT_EQ(acceptor.advance(input, answer), AuthAcceptor::State::failed);
}

TEST(Authentication, TakesNoProofThatItsOwnInitiatorHasMade) {
  // This is a reflection attack: the messages that the acceptor's process sends as an initiator are
  // sent back to it.
  SeededRandom random(4);
  AuthInitiator initiator(secret(), claim(), random);
  std::string hello, proof;
  std::string_view nothing;
  initiator.advance(nothing, hello);
  AuthChallenge challenge;
  challenge.has_secret = 1;
  std::string_view said = bytes_of(challenge);
  initiator.advance(said, proof);
  AuthResult mirrored;
  std::memcpy(mirrored.proof.data(), proof.data(), proof.size());
  std::string_view result = bytes_of(mirrored);
  EXPECT_EQ(initiator.advance(result, proof), AuthInitiator::State::failed);
}

TEST(Authentication, SaysOfAnotherVersionAndOfAnotherProtocolWhatTheyAre) {
  for (const bool tutti : {true, false}) {
    SeededRandom random(5);
    AuthInitiator initiator(secret(), claim(), random);
    AuthChallenge challenge;
    if (tutti)
      challenge.version = 99;
    else
      challenge.magic = 99;
    std::string output;
    std::string_view input = bytes_of(challenge);
    EXPECT_EQ(initiator.advance(input, output), AuthInitiator::State::failed);
    EXPECT_EQ(initiator.failure(), tutti ? AuthFailure::other_version : AuthFailure::not_tutti);
    EXPECT_EQ(output.size(), sizeof(AuthHello)) << "no proof for a stranger";
  }
}

TEST(Authentication, FailsAtOnceAndSilentlyForBytesThatAreNoHello) {
  SeededRandom random(6);
  for (int i = 0; i < 1000; ++i) {
    AuthAcceptor acceptor(secret(), claim(), random);
    std::string garbage(sizeof(AuthHello), '\0'), answer;
    for (char& byte : garbage) byte = static_cast<char>(random.next());
    std::string_view input = garbage;
    EXPECT_EQ(acceptor.advance(input, answer), AuthAcceptor::State::failed);
    EXPECT_TRUE(answer.empty());
  }
}

}  // namespace
}  // namespace tutti::net
