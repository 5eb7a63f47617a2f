// Tests of both ends of a TLS connection, and of attacks by somebody on the network between them.
#include "net/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/random.h"

namespace tutti::net {
namespace {

using testing::HasSubstr;

TlsKey key_of(unsigned char number) {
  TlsKey key{};
  key.fill(number);
  return key;
}

std::string some_bytes(std::size_t count) {
  SeededRandom random(count + 1);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.next());
  return bytes;
}

/// A client and a server. Each has a socket to the test, which acts as the network between them.
class TlsEnds : public testing::Test {
 protected:
  void make(const TlsKey& first = key_of(1), const TlsKey& second = key_of(1),
            std::uint64_t bytes_of_a_key = Tls::kBytesOfAKey) {
    const auto context = std::make_shared<const TlsContext>();
    change_ = [](int, std::string wire) { return wire; };
    on_its_way_[0] = on_its_way_[1] = "";
    const Tls::Role roles[] = {Tls::Role::client, Tls::Role::server};
    for (int end = 0; end < 2; ++end) {
      int pair[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
      own_[end] = Fd(pair[0]);
      network_[end] = Fd(pair[1]);
      ends_[end] = std::make_unique<Tls>(context, roles[end], end == 0 ? first : second, pair[0],
                                         bytes_of_a_key);
    }
  }
  /// Carries the bytes that each end has sent to the other one. change_() may alter them.
  void carry() {
    std::vector<char> buffer(1 << 20);
    for (int end = 0; end < 2; ++end) {
      const ssize_t got = recv(network_[end].get(), buffer.data(), buffer.size(), 0);
      std::string& wire = on_its_way_[end];
      if (got > 0) wire += change_(end, std::string(buffer.data(), static_cast<size_t>(got)));
      const ssize_t put = send(network_[1 - end].get(), wire.data(), wire.size(), 0);
      if (put <= 0) continue;
      carried_ += wire.substr(0, static_cast<std::size_t>(put));
      wire.erase(0, static_cast<std::size_t>(put));
    }
  }
  bool shake_hands() {
    for (int turn = 0; turn < 10; ++turn) {
      for (int end = 0; end < 2; ++end) state_[end] = ends_[end]->shake_hands();
      carry();
    }
    return state_[0] == Tls::Handshake::done && state_[1] == Tls::Handshake::done;
  }
  ssize_t write(int end, const std::string& bytes) {
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    return ends_[end]->write({&piece, 1});
  }
  /// Reads all bytes that have arrived. Then `error_` is the errno of the last read, or 0 at the
  /// end of the stream.
  std::string read(int end) {
    std::string bytes;
    std::vector<char> buffer(50'000);
    const iovec room{buffer.data(), buffer.size()};
    for (;;) {
      const ssize_t got = ends_[end]->read({&room, 1});
      error_ = got < 0 ? errno : 0;
      if (got <= 0) return bytes;
      bytes.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  /// Sends `bytes` from one end to the other, however often the socket is full, and returns the
  /// bytes that have arrived.
  std::string move(int from, const std::string& bytes) {
    std::string come;
    for (std::size_t sent = 0; come.size() < bytes.size();) {
      const ssize_t put = sent < bytes.size() ? write(from, bytes.substr(sent)) : 0;
      if (put > 0) sent += static_cast<std::size_t>(put);
      EXPECT_TRUE(ends_[from]->flush());
      carry();
      come += read(1 - from);
      EXPECT_EQ(error_, EAGAIN) << ends_[1 - from]->why();
      if (error_ != EAGAIN) break;
    }
    return come;
  }

  Fd own_[2], network_[2];
  std::unique_ptr<Tls> ends_[2];
  Tls::Handshake state_[2]{};
  std::function<std::string(int, std::string)> change_;
  std::string on_its_way_[2];
  std::string carried_;
  int error_ = 0;
};

TEST_F(TlsEnds, CarryBytesOfAnyNumberBothWaysAndShowNothingOfThem) {
  make();
  ASSERT_TRUE(shake_hands());
  for (const std::size_t count : {1u, 31u, 16'383u, 16'384u, 16'385u, 200'000u, 3'000'000u})
    for (const int from : {0, 1}) {
      const std::string bytes = some_bytes(count);
      carried_.clear();
      EXPECT_TRUE(move(from, bytes) == bytes) << count;
      if (count < 16) continue;
      EXPECT_EQ(carried_.find(bytes.substr(0, 16)), std::string::npos);
    }
}

TEST_F(TlsEnds, TakeSeveralPiecesAsOneStream) {
  make();
  ASSERT_TRUE(shake_hands());
  const std::string bytes = some_bytes(60'000);
  const std::size_t cuts[] = {0, 32, 32, 20'000, 20'032, 20'033, 60'000};
  std::vector<iovec> pieces;
  for (std::size_t i = 0; i + 1 < std::size(cuts); ++i)
    pieces.push_back({const_cast<char*>(bytes.data()) + cuts[i], cuts[i + 1] - cuts[i]});
  ASSERT_EQ(ends_[0]->write(pieces), 60'000);
  carry();
  std::string head(7, 0), tail(59'993, 0);
  const iovec to[] = {{head.data(), head.size()}, {tail.data(), tail.size()}};
  EXPECT_EQ(ends_[1]->read(to), 60'000);
  EXPECT_TRUE(head + tail == bytes);
}

TEST_F(TlsEnds, TakeNoMoreThanTheSocketDoesAndSaySo) {
  make();
  ASSERT_TRUE(shake_hands());
  const std::string bytes = some_bytes(4'000'000);
  const ssize_t taken = write(0, bytes);
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, 4'000'000);
  EXPECT_GT(ends_[0]->unsent_bytes(), 0u);
  EXPECT_EQ(write(0, bytes), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(TlsEnds, ChangeTheirKeysOnTheWay) {
  make(key_of(1), key_of(1), 20'000);
  ASSERT_TRUE(shake_hands());
  const std::string bytes = some_bytes(5'000'000);  // about 300 key updates
  for (const int from : {0, 1}) EXPECT_TRUE(move(from, bytes) == bytes);
}

TEST_F(TlsEnds, WithDifferentKeysDoNotComeTogether) {
  make(key_of(1), key_of(2));
  EXPECT_FALSE(shake_hands());
  EXPECT_NE(state_[0], Tls::Handshake::done);
  EXPECT_NE(state_[1], Tls::Handshake::done);
}

TEST_F(TlsEnds, DoNotTakeGarbageForAHandshake) {
  for (const int stranger : {0, 1}) {
    make();
    change_ = [stranger](int end, std::string wire) {
      return end == stranger ? std::string(wire.size(), 'x') : wire;
    };
    EXPECT_FALSE(shake_hands());
    EXPECT_EQ(state_[1 - stranger], Tls::Handshake::failed);
    EXPECT_FALSE(ends_[1 - stranger]->why().empty());
  }
}

TEST_F(TlsEnds, NoticeABitOfTheHandshakeThatIsChangedOrDoWithoutIt) {
  int changed = 0, noticed = 0;
  for (std::size_t at = 0; at < 400; at += 3)
    for (const int from : {0, 1}) {
      make();
      bool once = false;
      change_ = [&, from](int end, std::string wire) {
        if (end == from && at < wire.size() && !once) {
          wire[at] = static_cast<char>(wire[at] ^ 0x10);
          once = true;
        }
        return wire;
      };
      const bool through = shake_hands();
      changed += once;
      noticed += once && !through;
      // A change may go unnoticed in a field that nobody reads, such as a legacy version number.
      if (!through) continue;
      EXPECT_EQ(move(from, "what was meant"), "what was meant") << at;
    }
  EXPECT_GT(changed, 150);
  EXPECT_GT(noticed * 20, changed * 19);
}

TEST_F(TlsEnds, NoticeAnyByteThatIsChangedAndTellTheOtherEnd) {
  const std::string bytes = some_bytes(40);
  for (std::size_t at = 0; at < 5 + 40 + 1 + 16; ++at) {
    make();
    ASSERT_TRUE(shake_hands());
    change_ = [at](int end, std::string wire) {
      if (end == 0) wire[at] = static_cast<char>(wire[at] ^ 0x01);
      return wire;
    };
    write(0, bytes);
    carry();
    const std::string come = read(1);
    EXPECT_TRUE(come.empty()) << at;
    if (at == 3 || at == 4) continue;  // the length: the rest of a longer record may yet arrive
    EXPECT_EQ(error_, EBADMSG) << at;
    EXPECT_THAT(ends_[1]->why(), HasSubstr("changes what is on its way"));
    change_ = [](int, std::string wire) { return wire; };
    carry();
    read(0);
    EXPECT_EQ(error_, EBADMSG) << at;
    EXPECT_THAT(ends_[0]->why(), HasSubstr("what came there"));
  }
}

TEST_F(TlsEnds, NoticeARecordThatIsLeftOutRepeatedOrInAnotherOrder) {
  for (const int kind : {0, 1, 2}) {
    make();
    ASSERT_TRUE(shake_hands());
    std::vector<std::string> records;
    change_ = [&](int, std::string wire) {
      records.push_back(wire);
      return std::string();
    };
    for (int i = 0; i < 3; ++i) {
      write(0, some_bytes(100));
      carry();
    }
    const std::string wires[] = {records[0] + records[2], records[0] + records[0],
                                 records[1] + records[0]};
    EXPECT_EQ(send(network_[1].get(), wires[kind].data(), wires[kind].size(), 0),
              static_cast<ssize_t>(wires[kind].size()));
    EXPECT_EQ(read(1).size(), kind == 2 ? 0u : 100u);
    EXPECT_EQ(error_, EBADMSG);
  }
}

TEST_F(TlsEnds, GiveWhatCameBeforeTheEndWithAGoodbyeOrWithout) {
  for (const bool goodbye : {true, false}) {
    make();
    ASSERT_TRUE(shake_hands());
    write(0, "the last words");
    if (goodbye) ends_[0]->send_close_notify();
    carry();
    network_[1].reset();
    EXPECT_EQ(read(1), "the last words");
    EXPECT_EQ(error_, 0);
  }
}

}  // namespace
}  // namespace tutti::net
