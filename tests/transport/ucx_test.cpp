// Tests what is particular to UCX: queue pairs over it, whose peer is the test, and strangers.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "common/clock.h"
#include "transport/queue_pair/frame.h"
#include "transport/ucx/header.h"
#include "transport/ucx/open.h"
#include "transport/ucx/ucx.h"

namespace tutti {
namespace {

using qp::Completion;
using testing::HasSubstr;
using testing::Not;
using ucx::Header;
using ucx::Kind;

std::optional<Header> parse(const Header& header, std::size_t payload_bytes) {
  return ucx::parse_header(std::as_bytes(std::span(&header, 1)), payload_bytes);
}

Header header_of(Kind kind, std::uint32_t length) {
  Header header;
  header.kind = kind;
  header.token = 1;
  header.length = length;
  if (kind == Kind::read) header.key = 7;
  return header;
}

TEST(UcxHeader, OfEachKindIsTaken) {
  EXPECT_TRUE(parse(header_of(Kind::frame, 40), 40));
  EXPECT_TRUE(parse(header_of(Kind::frame, 0), 0));
  EXPECT_TRUE(parse(header_of(Kind::read, 1 << 20), 0));
  EXPECT_TRUE(parse(header_of(Kind::answer, 1 << 20), 1 << 20));
  Header refusal = header_of(Kind::answer, 0);
  refusal.refused = 1;
  EXPECT_TRUE(parse(refusal, 0));
}

TEST(UcxHeader, WithAnyFieldThatCannotBeIsRefused) {
  struct Change {
    const char* what;
    Kind kind;
    std::uint32_t length;
    std::size_t payload_bytes;
    void (*change)(Header&);
  };
  const Change changes[] = {
      {"magic", Kind::frame, 8, 8, [](Header& header) { ++header.magic; }},
      {"kind 0", Kind::frame, 8, 8, [](Header& header) { header.kind = Kind{0}; }},
      {"kind 4", Kind::frame, 8, 8, [](Header& header) { header.kind = Kind{4}; }},
      {"no token", Kind::frame, 8, 8, [](Header& header) { header.token = 0; }},
      {"a refused frame", Kind::frame, 8, 8, [](Header& header) { header.refused = 1; }},
      {"a frame's address", Kind::frame, 8, 8, [](Header& header) { header.address = 1; }},
      {"a frame's key", Kind::frame, 8, 8, [](Header& header) { header.key = 1; }},
      {"another length", Kind::frame, 8, 9, [](Header&) {}},
      {"a long frame", Kind::frame, qp::kSlotBytes + 1, qp::kSlotBytes + 1, [](Header&) {}},
      {"a payload of a request", Kind::read, 8, 8, [](Header&) {}},
      {"a request for nothing", Kind::read, 0, 0, [](Header&) {}},
      {"no key", Kind::read, 8, 0, [](Header& header) { header.key = 0; }},
      {"a refused request", Kind::read, 8, 0, [](Header& header) { header.refused = 1; }},
      {"an answer's length", Kind::answer, 8, 7, [](Header&) {}},
      {"an empty answer", Kind::answer, 0, 0, [](Header&) {}},
      {"a refusal with a payload", Kind::answer, 8, 8, [](Header& header) { header.refused = 1; }},
      {"two refusals", Kind::answer, 0, 0, [](Header& header) { header.refused = 2; }}};
  for (const Change& change : changes) {
    Header header = header_of(change.kind, change.length);
    change.change(header);
    EXPECT_FALSE(parse(header, change.payload_bytes)) << change.what;
  }
  const std::string_view whole = bytes_of(header_of(Kind::frame, 0));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(ucx::parse_header(std::as_bytes(std::span(whole.data(), bytes)), 0));
}

/// Two queue pairs that are connected to each other, and what each has completed.
class UcxPair : public testing::Test {
 protected:
  struct End {
    std::shared_ptr<qp::Device> device;
    std::unique_ptr<qp::QueuePair> pair;
    std::vector<std::byte> memory = std::vector<std::byte>(1 << 20);
    std::vector<Completion> completions;
  };

  void SetUp() override {
    if (!ucx::is_built()) GTEST_SKIP() << "this build was made without UCX's headers";
    setenv("UCX_TLS", "tcp,self", 0);
    for (End& end : ends_) {
      end.device = ucx::open_device({{"NET_DEVICES", "lo"}}, random_, &log_);
      end.pair = end.device->make({8, 20, 4}, &end);
      for (std::uint32_t slot = 0; slot < 20; ++slot)
        ASSERT_TRUE(end.pair->receive(
            slot, {end.memory.data() + slot * qp::kSlotBytes, qp::kSlotBytes, 0}));
    }
    ends_[0].pair->connect(ends_[1].pair->address());
    ends_[1].pair->connect(ends_[0].pair->address());
  }
  bool eventually(const std::function<bool()>& what) {
    const TimePoint until = clock_.now() + std::chrono::seconds(30);
    while (clock_.now() < until) {
      for (End& end : ends_) {
        if (end.pair == nullptr) continue;
        std::array<Completion, 8> some;
        const std::size_t count = end.pair->poll(some);
        end.completions.insert(end.completions.end(), some.begin(), some.begin() + count);
      }
      if (what()) return true;
    }
    return false;
  }
  /// Returns how a request ends: an empty text, or the error.
  std::string outcome_of(int at, Completion::What what, std::uint32_t id) {
    std::optional<std::string> outcome;
    const bool ended = eventually([&] {
      for (const Completion& each : ends_[at].completions)
        if (each.what == what && each.id == id) outcome = each.error == nullptr ? "" : each.error;
      return outcome.has_value();
    });
    return ended ? *outcome : "it never ended";
  }
  std::string send(qp::QueuePair& from, int at, std::size_t received) {
    std::array<std::byte, 100> bytes;
    bytes.fill(std::byte(received));
    if (!from.send(1, {bytes.data(), bytes.size(), 0})) return "not sent";
    const auto slot = static_cast<std::uint32_t>(received);
    const std::string outcome = outcome_of(at, Completion::What::received, slot);
    const std::byte* const there = ends_[at].memory.data() + slot * qp::kSlotBytes;
    return outcome.empty() && std::memcmp(there, bytes.data(), bytes.size()) != 0 ? "wrong bytes"
                                                                                  : outcome;
  }

  SteadyClock clock_;
  SystemRandom random_;
  std::vector<std::string> lines_;
  Log log_{LogLevel::warn, [this](LogLevel, std::string_view line) { lines_.emplace_back(line); }};
  std::array<End, 2> ends_;
};

TEST_F(UcxPair, LoadingTheLibraryKeepsTheHandlersOfSignals) {
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
    struct sigaction now {};
    ASSERT_EQ(sigaction(number, nullptr, &now), 0);
    Dl_info owner{};
    if (dladdr(reinterpret_cast<void*>(now.sa_sigaction), &owner) == 0) continue;
    EXPECT_THAT(owner.dli_fname, Not(HasSubstr("libuc"))) << "signal " << number;
  }
}

TEST_F(UcxPair, AStrangerWhoKnowsTheAddressButNotTheTokenIsIgnoredAndLoggedOnce) {
  const auto device = ucx::open_device({{"NET_DEVICES", "lo"}}, random_, nullptr);
  const auto stranger = device->make({8, 20, 4}, nullptr);
  std::string address = ends_[1].pair->address();
  address[0] = static_cast<char>(address[0] ^ 1);
  stranger->connect(address);
  std::array<std::byte, 100> bytes{};
  for (std::uint32_t i = 0; i < 3; ++i)
    ASSERT_TRUE(stranger->send(i, {bytes.data(), bytes.size(), 0}));
  ASSERT_TRUE(eventually([&] {
    std::array<Completion, 4> ignored;
    stranger->poll(ignored);
    return !lines_.empty() && stranger->is_flushed();
  }));
  EXPECT_EQ(send(*ends_[0].pair, 1, 0), "");
  EXPECT_EQ(ends_[1].completions.size(), 1u) << "only the peer's frame is received";
  EXPECT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], HasSubstr("stranger"));
}

TEST_F(UcxPair, AReadBringsTheBytesToTheirPlace) {
  std::vector<std::byte> from(300'000, std::byte{5}), to(300'000);
  const auto source = ends_[1].pair->add(from.data(), from.size(), true);
  const auto place = ends_[0].pair->add(to.data(), to.size(), false);
  ASSERT_TRUE(ends_[0].pair->read(2, {to.data() + 10, 250'000, place->local_key()},
                                  reinterpret_cast<std::uintptr_t>(from.data()) + 20,
                                  source->remote_key()));
  EXPECT_EQ(outcome_of(0, Completion::What::read, 2), "");
  EXPECT_EQ(to[9], std::byte{0});
  EXPECT_EQ(std::count(to.begin(), to.end(), std::byte{5}), 250'000);
}

TEST_F(UcxPair, NoMemoryIsReadButWhatIsRegisteredForThisPeerAndStill) {
  std::vector<std::byte> from(100'000, std::byte{5}), to(100'000);
  const auto readable = ends_[1].pair->add(from.data(), 50'000, true);
  const auto closed = ends_[1].pair->add(from.data() + 50'000, 50'000, false);
  const auto other = ends_[1].device->make({8, 20, 4}, nullptr);
  const auto of_other = other->add(from.data(), from.size(), true);
  auto ended = ends_[1].pair->add(from.data(), from.size(), true);
  const std::uint32_t ended_key = ended->remote_key();
  ended.reset();
  const auto address = reinterpret_cast<std::uintptr_t>(from.data());
  struct Attempt {
    const char* what;
    std::uintptr_t address;
    std::uint32_t bytes, key;
  };
  const std::uint32_t key = readable->remote_key();
  const Attempt attempts[] = {
      {"beyond its end", address + 1, 50'000, key},
      {"before its begin", address - 1, 10, key},
      {"an address that wraps", ~std::uintptr_t{0} - 3, 10, key},
      {"all of the address space", 0, 0xffffffffu, key},
      {"memory that is not readable", address + 50'000, 10, closed->remote_key()},
      {"memory for another peer", address, 10, of_other->remote_key()},
      {"memory that has ended", address, 10, ended_key},
      {"a key that was never given", address, 10, key ^ 1}};
  for (const Attempt& attempt : attempts) {
    ends_[0].completions.clear();
    ASSERT_TRUE(
        ends_[0].pair->read(1, {to.data(), attempt.bytes, 0}, attempt.address, attempt.key));
    EXPECT_EQ(outcome_of(0, Completion::What::read, 1), "remote access error") << attempt.what;
  }
  EXPECT_EQ(std::count(to.begin(), to.end(), std::byte{0}), 100'000);
  ends_[0].completions.clear();
  ASSERT_TRUE(ends_[0].pair->read(1, {to.data(), 50'000, 0}, address, key));
  EXPECT_EQ(outcome_of(0, Completion::What::read, 1), "");
}

TEST_F(UcxPair, AReadThatIsTakenBackWritesNothingAndDoesNotEnd) {
  std::vector<std::byte> from(100'000, std::byte{5}), to(100'000);
  const auto source = ends_[1].pair->add(from.data(), from.size(), true);
  const auto address = reinterpret_cast<std::uintptr_t>(from.data());
  ASSERT_TRUE(ends_[0].pair->read(3, {to.data(), 100'000, 0}, address, source->remote_key()));
  EXPECT_TRUE(ends_[0].pair->take_back_read(3));
  EXPECT_FALSE(ends_[0].pair->take_back_read(3));
  ASSERT_TRUE(ends_[0].pair->read(4, {to.data(), 10, 0}, address, source->remote_key()));
  EXPECT_EQ(outcome_of(0, Completion::What::read, 4), "");
  EXPECT_EQ(std::count(to.begin(), to.end(), std::byte{5}), 10);
  for (const Completion& each : ends_[0].completions) EXPECT_NE(each.id, 3u);
}

TEST_F(UcxPair, MoreFramesThanThereAreSlotsEndTheConnection) {
  std::array<std::byte, 10> bytes{};
  for (std::uint32_t i = 0; i < 21; ++i)
    ASSERT_TRUE(ends_[0].pair->send(0, {bytes.data(), bytes.size(), 0}));
  EXPECT_TRUE(eventually([&] {
    return !ends_[1].completions.empty() && ends_[1].completions.back().error != nullptr;
  }));
  EXPECT_THAT(ends_[1].completions.back().error, HasSubstr("makes no sense"));
}

TEST_F(UcxPair, AStoppedOneFailsItsReadsAndSendsNothing) {
  std::vector<std::byte> to(1000);
  ASSERT_TRUE(ends_[0].pair->read(1, {to.data(), 1000, 0}, 4096, 9));
  ends_[0].pair->stop();
  EXPECT_EQ(outcome_of(0, Completion::What::read, 1), "it was stopped");
  EXPECT_FALSE(ends_[0].pair->send(0, {to.data(), 10, 0}));
  EXPECT_FALSE(ends_[0].pair->read(0, {to.data(), 10, 0}, 4096, 9));
}

TEST_F(UcxPair, ThatEndsIsAFailureAtTheOtherEndBehindWhatItSent) {
  std::array<std::byte, 10> bytes{};
  ASSERT_TRUE(ends_[0].pair->send(0, {bytes.data(), bytes.size(), 0}));
  ASSERT_TRUE(eventually([&] { return ends_[0].pair->is_flushed(); }));
  ends_[0].pair.reset();
  ends_[0].device.reset();  // UCX closes the socket when it works the next time, or ends.
  ASSERT_TRUE(eventually([&] { return ends_[1].completions.size() >= 2; }));
  EXPECT_EQ(ends_[1].completions[0].error, nullptr);
  EXPECT_NE(ends_[1].completions[1].error, nullptr);
}

TEST_F(UcxPair, AnAddressOfGarbageIsUnavailable) {
  for (const char* address : {"", "12345678"}) {
    const auto other = ends_[0].device->make({8, 20, 4}, nullptr);
    EXPECT_THROW(other->connect(address), Error);
  }
}

TEST(Ucx, IsLeftOutByItselfWhereItWouldUsePlainTcpAndIsUsedWhereItIsNamed) {
  if (!ucx::is_built()) GTEST_SKIP() << "this build was made without UCX's headers";
  const TransportEntry entry = ucx::entry();
  const auto reach = [&](std::string_view one, std::string_view other) {
    return entry.reach(one, other);
  };
  EXPECT_THAT(reach("plain", "device 100").why_not, HasSubstr("TUTTI_TRANSPORTS=ucx"));
  EXPECT_THAT(reach("device 100", "unbuilt").why_not, HasSubstr("libucx-dev"));
  EXPECT_THAT(reach("encrypted", "encrypted").why_not, HasSubstr("TUTTI_TLS"));
  EXPECT_EQ(reach("tcp 8", "tcp 8").why_not, "");
  EXPECT_EQ(reach("device 100", "device 25").can.bytes_per_second, 25 * 125'000'000LL);
  EXPECT_LT(reach("device 8", "device 8").can.latency_ps, reach("tcp 8", "tcp 8").can.latency_ps);
  Config config;
  config.rdma_devices = "none-such";
  TransportContext context;
  context.config = &config;
  EXPECT_EQ(entry.place(context), "plain");
  config.transports = "ucx,tcp";
  EXPECT_EQ(entry.place(context), "tcp 8");
  config.tls = true;
  EXPECT_EQ(entry.place(context), "encrypted");
  EXPECT_THROW(static_cast<void>(entry.make(context)), Error);
}

}  // namespace
}  // namespace tutti
