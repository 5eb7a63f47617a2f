// Tests of encrypted connections: who can connect, and what a process in the middle can do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "middle.h"
#include "tcp_ranks.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TcpWithTls : public TcpTransport {
 protected:
  TcpWithTls() { config_.tls = true; }
  TransportContext unencrypted(int rank, int size) {
    TransportContext without = context(rank, size);
    without.config = &plain_;
    return without;
  }
  void make_two() { ranks_ = make(2); }
  /// Sends until the window is full.
  static int fill(SendChannel& sender, std::size_t bytes) {
    int sent = 0;
    for (; sender.acquire(bytes); ++sent) sender.post({1, 2, static_cast<std::uint32_t>(bytes), 0});
    return sent;
  }

  const Config plain_;
  std::vector<std::unique_ptr<Transport>> ranks_;
};

TEST_F(TcpWithTls, WhoKnowsAnotherSecretIsRefusedAndTold) {
  ranks_.push_back(tcp::entry().make(context(0, 2)));
  ranks_.push_back(tcp::entry().make(context(1, 2, "another job's secret")));
  const auto ends = connect(ranks_, std::chrono::seconds(1));
  EXPECT_THAT(ends[0], AllOf(HasSubstr("timeout"), HasSubstr("rank 1 never called")));
  EXPECT_THAT(ends[1], AllOf(HasSubstr("mismatch"), HasSubstr("another secret")));
}

TEST_F(TcpWithTls, WhereOneEncryptsAndTheOtherDoesNotBothSayWhichAndWhatToDo) {
  for (const bool first : {true, false}) {
    ranks_.clear();
    for (int rank = 0; rank < 2; ++rank)
      ranks_.push_back(
          tcp::entry().make((rank == 0) == first ? context(rank, 2) : unencrypted(rank, 2)));
    const auto ends = connect(ranks_);
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_THAT(ends[rank], AllOf(HasSubstr("mismatch"), HasSubstr("TUTTI_TLS=yes on all ranks"),
                                    HasSubstr("rank " + std::to_string(1 - rank))));
  }
}

TEST_F(TcpWithTls, WithoutASecretSaysWhatToDo) {
  config_.trust_network = true;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 2; ++rank) {
    ranks_.push_back(tcp::entry().make(context(rank, 2, "")));
    auto there = mesh::Address::parse(ranks_.back()->address());
    there->host = "machine " + std::to_string(rank);
    there->secret = {};
    addresses.push_back(there->to_string());
  }
  const auto ends = connect(ranks_, kLong, addresses);
  for (const std::string& end : ends)
    EXPECT_THAT(end, AllOf(HasSubstr("usage"), HasSubstr("TUTTI_TLS"), HasSubstr("openssl rand")));
}

TEST_F(TcpWithTls, BytesThatAreChangedOnTheWayAreCorruptForBothEnds) {
  for (const bool from_caller : {true, false}) {  // rank 1 is the caller
    ranks_.clear();
    make_two();
    Middle middle(place_of(*ranks_[0]));
    connect_by({middle.place()}, ranks_);
    const int sender = from_caller ? 1 : 0, receiver = 1 - sender;
    middle.flip(from_caller, 1000);
    fill(ranks_[sender]->sender(receiver, 0), 4000);
    for (const int rank : {receiver, sender}) {
      EXPECT_TRUE(eventually(*ranks_[rank], [&] {
        return ranks_[rank]->status(1 - rank).state == PeerStatus::State::corrupt;
      })) << rank;
      EXPECT_THAT(ranks_[rank]->status(1 - rank).why, HasSubstr("on its way"));
    }
    EXPECT_TRUE(middle.has_flipped());
    EXPECT_FALSE(ranks_[receiver]->receiver(sender, 0).peek());
  }
}

TEST_F(TcpTransport, WithChecksumsABitThatIsChangedIsCorruptForWhoGetsIt) {
  // The changed bit is in the header of a message, in a message that goes to memory of the channel,
  // and in one that goes straight to its destination.
  config_.checksum = true;
  for (const std::size_t at : {3u, 20u, 1'000u, 30'000u}) {
    std::vector<std::unique_ptr<Transport>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      TransportContext checked = context(rank, 2);
      checked.max_message_bytes = 40'000;
      ranks.push_back(tcp::entry().make(checked));
    }
    Middle middle(place_of(*ranks[0]));
    connect_by({middle.place()}, ranks);
    middle.flip(true, at);
    SendChannel& sender = ranks[1]->sender(0, 0);
    std::vector<std::byte> data(40'000, std::byte{7});
    ASSERT_TRUE(sender.acquire_zero_copy({data.data(), data.size()}));
    sender.post({1, 2, 40'000, 0});
    std::vector<std::byte> copy(40'000);
    RecvChannel& receiver = ranks[0]->receiver(1, 0);
    EXPECT_TRUE(eventually(*ranks[0], [&] {
      static_cast<void>(ranks[1]->all_left());
      const auto found = receiver.peek();
      EXPECT_TRUE(!found || found->remote);
      if (found) {
        EXPECT_EQ(receiver.get({copy.data(), copy.size()}), nullptr);
      }
      return ranks[0]->status(1).state == PeerStatus::State::corrupt;
    })) << at;
    EXPECT_THAT(ranks[0]->status(1).why, HasSubstr("checksum"));
    // Its status page is still sent and tells the peer why.
    ranks[0]->own_status_page().fail(ErrorKind::corrupt, "what came is damaged");
    ranks[0]->wake(1);
    EXPECT_TRUE(eventually(*ranks[1], [&] {
      return ranks[1]->status(0).state == PeerStatus::State::failed;
    })) << at;
  }
}

TEST_F(TcpWithTls, AHandshakeThatIsChangedOnTheWayIsTriedAgainByTheNextWay) {
  make_two();
  Middle middle(place_of(*ranks_[0]));
  middle.flip(false, 48 + 40 + 60);  // behind the proof, in the first bytes that the server sends
  connect_by({middle.place(), place_of(*ranks_[0])}, ranks_);
  EXPECT_TRUE(middle.has_flipped());
}

TEST_F(TcpWithTls, AnEndWithoutAGoodbyeIsAPeerThatIsLostAndWhatItSentIsReceived) {
  make_two();
  Middle middle(place_of(*ranks_[0]));
  connect_by({middle.place()}, ranks_);
  const int sent = fill(ranks_[1]->sender(0, 0), 100);
  middle.cut();
  EXPECT_TRUE(eventually(*ranks_[0],
                         [&] { return ranks_[0]->status(1).state == PeerStatus::State::lost; }));
  RecvChannel& receiver = ranks_[0]->receiver(1, 0);
  for (int message = 0; message < sent; ++message, receiver.release())
    ASSERT_TRUE(receiver.peek()) << message;
  EXPECT_FALSE(receiver.peek());
}

}  // namespace
}  // namespace tutti
