// Tests of point-to-point messages of all ranks in one thread, in an order drawn from a seed, over
// every transport.
#include "runtime/p2p/point_to_point.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "ranks.h"

namespace tutti::test {
namespace {

// The largest eager message, with the small messages of the tests.
constexpr std::size_t kEager = Ranks::kMessageBytes - 16;

std::byte* at(std::vector<std::byte>& bytes) { return bytes.data(); }

TransferCall send_call(int to, int tag, std::vector<std::byte>& data) {
  return {Direction::send, DataType::uint8, to, tag, data.size(), at(data)};
}
TransferCall recv_call(int from, int tag, std::vector<std::byte>& data) {
  return {Direction::recv, DataType::uint8, from, tag, data.size(), at(data)};
}

// How the receives of one rank match messages. All receives of a rank do it the same way, so that
// every message has a receive, whatever the order.
enum class Wants { source_and_tag, any_source, any_tag, anything };

struct Sent {
  int from, to, tag;
  std::vector<std::byte> data;
  Transfer transfer;
};

struct Wanted {
  int rank;
  std::vector<std::byte> data;
  Transfer transfer;
  Sent* got = nullptr;
};

// Each message begins with its number, as far as it has room for it.
void fill(std::vector<std::byte>& data, std::uint32_t number) {
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = i < 4 ? std::byte(number >> 8 * i) : std::byte(mix(number * 65537ull + i));
}

std::size_t random_bytes(Random& random) {
  constexpr std::size_t kSizes[] = {4, 8, 24, 25, 100, kEager - 1, kEager, kEager + 1, 1024, 5000};
  return kSizes[random.next() % std::size(kSizes)];
}

// A job of random messages, with the sends and receives of each rank and their order.
class Job {
 public:
  Job(Ranks& ranks, std::vector<std::unique_ptr<PointToPoint>>& all, std::size_t messages)
      : ranks_(ranks), all_(all), random_(ranks.random()) {
    blocking_sends_ = random_.next() % 3 == 0;
    for (int rank = 0; rank < ranks.size(); ++rank)
      wants_.push_back(static_cast<Wants>(random_.next() % 4));
    for (std::size_t k = 0; k < messages; ++k) add_message(static_cast<std::uint32_t>(k));
    for (auto& sent : sent_) add_receive(*sent);
    for (int rank = 0; rank < ranks.size(); ++rank) scripts_.push_back(script(rank));
  }

  // Returns what is wrong with the result, or an empty string.
  std::string run() {
    std::size_t idle = 0;
    while (left_ > 0) {
      const auto rank = static_cast<std::size_t>(random_.next() % all_.size());
      if (++idle > 20'000 * all_.size()) return fmt::format("{} transfers never end", left_);
      if (random_.next() % 2 == 0 && issue(rank)) idle = 0;
      ranks_.transport(static_cast<int>(rank)).progress();
      all_[rank]->advance();
      while (all_[rank]->take_ended() != nullptr) {
        --left_;
        idle = 0;
      }
    }
    return difference();
  }

 private:
  void add_message(std::uint32_t number) {
    const auto size = static_cast<std::uint64_t>(ranks_.size());
    auto sent = std::make_unique<Sent>();
    sent->from = static_cast<int>(random_.next() % size);
    sent->to = static_cast<int>(random_.next() % size);
    sent->tag = static_cast<int>(random_.next() % 3);
    const bool named = wants_[static_cast<std::size_t>(sent->to)] == Wants::source_and_tag;
    sent->data.resize(named && random_.next() % 8 == 0 ? 0 : random_bytes(random_));
    fill(sent->data, number);
    sent->transfer.call = send_call(sent->to, sent->tag, sent->data);
    sent_.push_back(std::move(sent));
  }

  void add_receive(const Sent& sent) {
    const Wants wants = wants_[static_cast<std::size_t>(sent.to)];
    auto wanted = std::make_unique<Wanted>();
    wanted->rank = sent.to;
    wanted->data.resize(wants == Wants::source_and_tag ? sent.data.size() : 5000);
    const bool any_source = wants == Wants::any_source || wants == Wants::anything;
    const bool any_tag = wants == Wants::any_tag || wants == Wants::anything;
    wanted->transfer.call =
        recv_call(any_source ? kAnySource : sent.from, any_tag ? kAnyTag : sent.tag, wanted->data);
    wanted_.push_back(std::move(wanted));
  }

  // Puts the sends in their order and the receives anywhere, but the receives of one (source, tag)
  // in order so that the sizes fit. Blocking sends come after all receives: otherwise they would
  // rightly wait for ever.
  std::vector<Transfer*> script(int rank) {
    std::vector<Transfer*> sends, receives, both;
    for (auto& sent : sent_)
      if (sent->from == rank) sends.push_back(&sent->transfer);
    for (auto& wanted : wanted_)
      if (wanted->rank == rank) receives.push_back(&wanted->transfer);
    left_ += sends.size() + receives.size();
    if (wants_[static_cast<std::size_t>(rank)] != Wants::source_and_tag || random_.next() % 2 == 0)
      std::stable_sort(receives.begin(), receives.end(), [&](const auto* a, const auto* b) {
        return mix(static_cast<std::uint64_t>(a->call.tag * 64 + a->call.peer)) <
               mix(static_cast<std::uint64_t>(b->call.tag * 64 + b->call.peer));
      });
    auto send = sends.begin();
    auto receive = receives.begin();
    while (send != sends.end() || receive != receives.end()) {
      const bool next_is_send =
          receive == receives.end() ||
          (send != sends.end() && !blocking_sends_ && random_.next() % 2 == 0);
      both.push_back(next_is_send ? *send++ : *receive++);
    }
    return both;
  }

  bool issue(std::size_t rank) {
    auto& script = scripts_[rank];
    if (issued_.size() <= rank) issued_.resize(all_.size(), 0);
    std::size_t& next = issued_[rank];
    if (next == script.size()) return false;
    const bool blocked = blocking_sends_ && next > 0 && !script[next - 1]->done &&
                         script[next - 1]->call.direction == Direction::send;
    if (blocked) return false;
    all_[rank]->start(*script[next++]);
    return true;
  }

  std::string difference() {
    for (auto& wanted : wanted_)
      if (const std::string wrong = received(*wanted); !wrong.empty()) return wrong;
    for (auto& sent : sent_)
      if (std::count_if(wanted_.begin(), wanted_.end(),
                        [&](const auto& wanted) { return wanted->got == sent.get(); }) != 1)
        return "a message was not received once";
    return overtaken();
  }

  std::string received(Wanted& wanted) {
    const Received& got = wanted.transfer.received;
    const auto fits = [&](const auto& sent) {
      return sent->from == got.source && sent->to == wanted.rank && sent->tag == got.tag &&
             sent->data.size() == got.count &&
             std::equal(sent->data.begin(), sent->data.end(), wanted.data.begin());
    };
    // Empty messages cannot be told apart, so this takes the first one that no receive has.
    for (auto& sent : sent_)
      if (fits(sent) && std::none_of(wanted_.begin(), wanted_.end(),
                                     [&](const auto& other) { return other->got == sent.get(); })) {
        wanted.got = sent.get();
        return "";
      }
    return fmt::format("rank {} got {} bytes from rank {} with tag {} that nobody sent",
                       wanted.rank, got.count, got.source, got.tag);
  }

  // Checks that of two messages of one rank that a receive matched, it got the one sent first.
  std::string overtaken() const {
    std::unordered_map<const Transfer*, std::size_t> place;  // in the script of its rank
    for (const auto& script : scripts_)
      for (std::size_t i = 0; i < script.size(); ++i) place.emplace(script[i], i);
    std::vector<std::size_t> received_at, sent_at;  // indexed as wanted_
    for (const auto& wanted : wanted_) {
      received_at.push_back(place.at(&wanted->transfer));
      sent_at.push_back(place.at(&wanted->got->transfer));
    }
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      for (std::size_t j = 0; j < wanted_.size(); ++j) {
        const Wanted& early = *wanted_[i];
        const Wanted& late = *wanted_[j];
        if (early.rank != late.rank || early.got->from != late.got->from) continue;
        if (received_at[i] >= received_at[j]) continue;
        const int tag = early.transfer.call.tag;
        if ((tag == kAnyTag || tag == late.got->tag) && !late.got->data.empty() &&
            !early.got->data.empty() && sent_at[j] < sent_at[i])
          return fmt::format("a message from rank {} to rank {} was overtaken", early.got->from,
                             early.rank);
      }
    return "";
  }

  Ranks& ranks_;
  std::vector<std::unique_ptr<PointToPoint>>& all_;
  Random& random_;
  bool blocking_sends_ = false;
  std::vector<Wants> wants_;
  std::vector<std::unique_ptr<Sent>> sent_;
  std::vector<std::unique_ptr<Wanted>> wanted_;
  std::vector<std::vector<Transfer*>> scripts_;
  std::vector<std::size_t> issued_;
  std::size_t left_ = 0;
};

std::vector<std::unique_ptr<PointToPoint>> make_all(Ranks& ranks) {
  std::vector<std::unique_ptr<PointToPoint>> all;
  for (int rank = 0; rank < ranks.size(); ++rank)
    all.push_back(std::make_unique<PointToPoint>(ranks.transport(rank), rank, ranks.size()));
  return all;
}

struct Case {
  TransportKind kind;
  int ranks;
  int jobs;
};

class RandomMessages : public testing::TestWithParam<Case> {};

TEST_P(RandomMessages, AreAllReceivedOnceAndInOrderWhateverTheOrderOfCalls) {
  const auto [kind, size, jobs] = GetParam();
  Ranks ranks(kind, size, 4711);
  auto all = make_all(ranks);
  for (int job = 0; job < jobs; ++job) {
    // 400 messages need more credit than there is.
    const std::size_t messages = job % 10 == 0 ? 400 : 40;
    ASSERT_EQ(Job(ranks, all, messages).run(), "") << "job " << job;
    for (const auto& each : all) ASSERT_TRUE(each->idle());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Transports, RandomMessages,
    testing::Values(Case{TransportKind::local, 1, 200}, Case{TransportKind::local, 2, 3000},
                    Case{TransportKind::local, 3, 2000}, Case{TransportKind::local, 8, 500},
                    Case{TransportKind::shm, 2, 200}, Case{TransportKind::shm, 5, 100},
                    Case{TransportKind::stream, 2, 60}, Case{TransportKind::stream, 4, 30}),
    [](const auto& tested) {
      return std::string(to_string(tested.param.kind)) + std::to_string(tested.param.ranks);
    });

// Two ranks that a test advances step by step.
class TwoRanks : public testing::Test {
 protected:
  explicit TwoRanks(std::size_t message_bytes = Ranks::kMessageBytes)
      : ranks_(TransportKind::local, 2, 1, message_bytes) {}

  // Advances both ranks until nothing changes.
  void settle() {
    for (int turn = 0; turn < 100; ++turn)
      for (auto& rank : all_) rank->advance();
  }
  PointToPoint& rank(std::size_t k) { return *all_[k]; }

  Ranks ranks_;
  std::vector<std::unique_ptr<PointToPoint>> all_ = make_all(ranks_);
};

struct EagerCase {
  /// The bytes of a message, and the number of such messages that the credit suffices for.
  std::size_t bytes, fit;
};

class EagerSends : public TwoRanks, public testing::WithParamInterface<EagerCase> {
 protected:
  // The rings have room for more than the credit allows.
  EagerSends() : TwoRanks(PointToPoint::kCredit * PointToPoint::kBytesPerCredit) {}
};

INSTANTIATE_TEST_SUITE_P(Sizes, EagerSends,
                         testing::Values(EagerCase{8, 64}, EagerCase{4096, 64}, EagerCase{4097, 32},
                                         EagerCase{8192, 32}, EagerCase{8193, 0}),
                         [](const auto& of) { return fmt::format("{}", of.param.bytes); });

TEST_P(EagerSends, EndAtOnceUntilTheCreditIsUsedUpAndNoMessageIsKeptBeyondIt) {
  std::vector<std::byte> data(GetParam().bytes);
  std::vector<Transfer> sends(PointToPoint::kCredit + 10);
  for (Transfer& send : sends) {
    send.call = send_call(1, 0, data);
    rank(0).start(send);
    rank(1).advance();
  }
  const auto ended =
      std::count_if(sends.begin(), sends.end(), [](auto& send) { return send.done; });
  EXPECT_EQ(ended, GetParam().fit);
  std::vector<std::byte> out(GetParam().bytes);
  std::vector<Transfer> receives(sends.size());
  for (Transfer& recv : receives) {
    recv.call = recv_call(0, 0, out);
    rank(1).start(recv);
  }
  settle();
  for (const Transfer& send : sends) EXPECT_TRUE(send.done);
  for (const Transfer& recv : receives) EXPECT_TRUE(recv.done);
  // The credit has been returned, so the next message is eager again.
  Transfer again;
  again.call = send_call(1, 0, data);
  rank(0).start(again);
  EXPECT_EQ(again.done, GetParam().fit > 0);
}

TEST_F(TwoRanks, ALargeMessageWaitsForItsReceiveAndGoesStraightIntoItsBuffer) {
  std::vector<std::byte> data(100'000), out(100'001, std::byte{0xee});
  fill(data, 42);
  Transfer send, recv;
  send.call = send_call(1, 5, data);
  rank(0).start(send);
  settle();
  EXPECT_FALSE(send.done);
  recv.call = recv_call(kAnySource, kAnyTag, out);
  rank(1).start(recv);
  settle();
  EXPECT_TRUE(send.done && recv.done);
  EXPECT_EQ(recv.received.source, 0);
  EXPECT_EQ(recv.received.tag, 5);
  EXPECT_EQ(recv.received.count, data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), out.begin()));
  EXPECT_EQ(out.back(), std::byte{0xee});
}

TEST_F(TwoRanks, ReceivesFromAnyTakeTurnsAmongThoseWhoSend) {
  Ranks ranks(TransportKind::local, 4, 1);
  auto all = make_all(ranks);
  std::vector<std::byte> data(8), out(8);
  std::vector<Transfer> sends(3 * 30);
  for (std::size_t k = 0; k < sends.size(); ++k) {
    sends[k].call = send_call(0, 0, data);
    all[1 + k / 30]->start(sends[k]);
  }
  std::vector<int> got(4, 0);
  for (int k = 0; k < 30; ++k) {
    Transfer recv;
    recv.call = recv_call(kAnySource, 0, out);
    all[0]->start(recv);
    while (!recv.done) all[0]->advance(&recv);
    while (all[0]->take_ended() != nullptr) continue;
    ++got[static_cast<std::size_t>(recv.received.source)];
  }
  EXPECT_THAT(got, testing::ElementsAre(0, 10, 10, 10));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.kind()), error.what());
  }
}

TEST_F(TwoRanks, AnotherTypeIsAMismatchThatSaysWhatBothCalled) {
  // The first message is eager, the second uses the rendezvous protocol.
  for (const std::size_t count : {2u, 2000u}) {
    ranks_ = Ranks(TransportKind::local, 2, 1);
    Ranks ranks(TransportKind::local, 2, 1);
    all_ = make_all(ranks);
    std::vector<float> data(count);
    std::vector<std::int32_t> out(count);
    Transfer send, recv;
    send.call = {
        Direction::send, DataType::f32, 1, 7, count, reinterpret_cast<std::byte*>(data.data())};
    recv.call = {
        Direction::recv, DataType::int32, 0, 7, count, reinterpret_cast<std::byte*>(out.data())};
    rank(0).start(send);
    rank(1).start(recv);
    EXPECT_EQ(refusal([&] { settle(); }),
              fmt::format("mismatch: rank 1 called recv({0} x int32) from rank 0 with tag 7, but "
                          "rank 0 called send({0} x f32) to rank 1 with tag 7. Receive the type "
                          "that is sent",
                          count));
    rank(0).abandon();
    rank(1).abandon();
    EXPECT_TRUE(rank(0).idle() && rank(1).idle());
    EXPECT_EQ(rank(1).take_ended(), &recv);
    all_.clear();
  }
}

TEST_F(TwoRanks, AMessageLongerThanItsReceiveIsAMismatchAlsoWhenItCameFirst) {
  std::vector<std::byte> data(9), out(8);
  Transfer send, other, recv;
  send.call = send_call(1, 1, data);
  rank(0).start(send);
  other.call = recv_call(0, 2, out);  // It keeps the unexpected message.
  rank(1).start(other);
  settle();
  recv.call = recv_call(0, 1, out);
  EXPECT_EQ(refusal([&] { rank(1).start(recv); }),
            "mismatch: rank 1 called recv(8 x uint8) from rank 0 with tag 1, but rank 0 called "
            "send(9 x uint8) to rank 1 with tag 1. Receive at least as many elements as are sent");
}

TEST_F(TwoRanks, DamagedMessagesAreRefusedAsCorrupt) {
  const auto post = [&](Header header, std::initializer_list<std::uint8_t> bytes) {
    SendChannel& channel = ranks_.transport(0).sender(1, PointToPoint::kControlChannel);
    const auto slot = channel.acquire(bytes.size());
    std::memcpy(slot->data, bytes.begin(), bytes.size());
    header.length = static_cast<std::uint32_t>(bytes.size());
    channel.post(header);
  };
  constexpr std::uint32_t kMark = 0x31703270;
  std::vector<std::byte> out(8);
  const auto heard = [&] {
    PointToPoint fresh(ranks_.transport(1), 1, 2);
    Transfer recv;
    recv.call = recv_call(0, 0, out);
    fresh.start(recv);
    const std::string text = refusal([&] { fresh.advance(); });
    ranks_.transport(1).receiver(0, PointToPoint::kControlChannel).release();
    return text;
  };
  using testing::AllOf;
  using testing::HasSubstr;
  using testing::StartsWith;
  post({0, 1234, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(heard(), AllOf(StartsWith("corrupt: rank 1"), HasSubstr("mark 0x4d2")));
  post({0, kMark, 0, 0}, {0, 0, 0});
  EXPECT_THAT(heard(), HasSubstr("has 3 bytes"));
  post({0, kMark, 0, 0}, {9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(heard(), HasSubstr("is of kind 9"));
  post({0, kMark, 0, 0}, {0, 1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(heard(), HasSubstr("claims 5 elements in 0 bytes"));
  post({0, kMark, 0, 0}, {0, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(heard(), HasSubstr("claims 0 elements in 0 bytes"));
  post({0, kMark, 0, 0}, {1, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(heard(), HasSubstr("is of type 99"));
  post({77, kMark, 0, 0}, {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(heard(), HasSubstr("asks for number 77"));
  post({0, kMark, 0, 0}, {3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(heard(), HasSubstr("more credit than there is"));
  // The message holds an int32 and 3 bytes more, which would be written behind the buffer.
  post({0, kMark, 0, 0}, {0, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7});
  EXPECT_THAT(heard(), HasSubstr("claims 1 elements in 7 bytes"));
}

TEST_F(TwoRanks, MessagesThatUseMoreCreditThanThereIsAreRefusedAsCorrupt) {
  constexpr std::uint32_t kMark = 0x31703270;
  SendChannel& channel = ranks_.transport(0).sender(1, PointToPoint::kControlChannel);
  const auto post = [&] {  // an eager message of no bytes with tag 7
    const std::array<std::uint8_t, 16> bytes{0, 1, 0, 0, 7};
    const auto slot = channel.acquire(bytes.size());
    ASSERT_TRUE(slot);
    std::memcpy(slot->data, bytes.data(), bytes.size());
    channel.post({0, kMark, static_cast<std::uint32_t>(bytes.size()), 0});
  };
  std::vector<std::byte> out(8);
  Transfer recv;
  recv.call = recv_call(0, 1, out);  // It takes none of them.
  rank(1).start(recv);
  for (unsigned message = 0; message < PointToPoint::kCredit; ++message) {
    post();
    rank(1).advance();
  }
  post();
  EXPECT_THAT(refusal([&] { rank(1).advance(); }),
              testing::HasSubstr("uses more credit than there is"));
}

/// The rings of two processes, beyond whose end a damaged length would lead.
class DamagedLength : public testing::Test {
 protected:
  static constexpr std::size_t kBuffer = 64 << 20;
  static constexpr std::uint32_t kMark = 0x31703270;

  // Posts the bytes as a message whose header has been damaged since it was posted.
  void post(int channel, Header header, std::span<const std::uint8_t> bytes) {
    SendRing& ring = *ranks_.transport(0).sender(1, channel).ring();
    std::byte* const slot = ring.acquire(bytes.size());
    ASSERT_NE(slot, nullptr);
    std::memcpy(slot, bytes.data(), bytes.size());
    ring.post(header);
  }
  // Returns what rank 1 throws while it receives a large message of rank 0.
  std::string heard() {
    for (const TimePoint until = clock_.now() + std::chrono::seconds(10); clock_.now() < until;) {
      ranks_.transport(1).progress();  // This attaches the ring.
      const std::string text = refusal([&] { rank_.advance(); });
      if (!text.empty()) return text;
    }
    return "nothing";
  }

  SteadyClock clock_;
  Ranks ranks_{TransportKind::shm, 2, 1};
  PointToPoint rank_{ranks_.transport(1), 1, 2};
  std::vector<std::byte> out_ = std::vector<std::byte>(kBuffer);
};

TEST_F(DamagedLength, OfAPieceIsCorruptAndNotReadBeyondTheRing) {
  Transfer recv;
  recv.call = recv_call(0, 0, out_);
  rank_.start(recv);
  // A request to send 64 MiB.
  const std::uint8_t request[16] = {1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4};
  post(PointToPoint::kControlChannel, {0, kMark, sizeof request, 0}, request);
  const std::vector<std::uint8_t> piece(Ranks::kMessageBytes);
  post(PointToPoint::kBulkChannel, {0, kMark, kBuffer, 0}, piece);
  EXPECT_THAT(heard(), testing::AllOf(testing::StartsWith("corrupt: rank 1"),
                                      testing::HasSubstr("rank 0 has 67108864 bytes")));
  rank_.abandon();
}

// The envelope claims to lie in memory of the sender, from which the kernel would read 4 GiB.
TEST_F(DamagedLength, OfAnEnvelopeThatIsAwayIsCorruptAndNotFetched) {
  Transfer recv;
  recv.call = recv_call(0, 0, out_);
  rank_.start(recv);
  SendRing& ring = *ranks_.transport(0).sender(1, PointToPoint::kControlChannel).ring();
  ASSERT_TRUE(ring.acquire_at(at_address(out_.data())));
  ring.post({0, kMark, ~std::uint32_t{0}, 0});
  EXPECT_THAT(heard(), testing::AllOf(testing::StartsWith("corrupt: rank 1"),
                                      testing::HasSubstr("has 4294967295 bytes")));
  rank_.abandon();
}

}  // namespace
}  // namespace tutti::test
