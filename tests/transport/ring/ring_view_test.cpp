// Tests of a ring through the views of its ends, as a device uses it.
#include "transport/ring/ring_view.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "common/random.h"
#include "test_ring.h"
#include "transport/ring/ring.h"

namespace tutti {
namespace {

// These classes use nothing of the ring but the view of their end.
class ViewSender {
 public:
  explicit ViewSender(const RingView& view) : view_(view), ends_{}, seen_(view.next) {}

  bool send(std::span<const std::byte> payload) {
    see_released();
    if (view_.next - view_.released->load(std::memory_order_acquire) >= kLines) return false;
    Line& line = view_.lines[view_.next % kLines];
    if (payload.size() <= kInlineBytes) {
      if (!payload.empty()) std::memcpy(line.payload, payload.data(), payload.size());
    } else {
      const std::uint64_t at = place(view_.position, payload.size(), view_.data_bytes);
      const std::uint64_t end = at + padded(payload.size());
      if (end - view_.freed > view_.data_bytes) return false;
      std::memcpy(view_.data + at % view_.data_bytes, payload.data(), payload.size());
      const Origin origin;
      std::memcpy(line.payload, &origin, sizeof origin);
      view_.position = end;
    }
    line.header = of_length(payload.size(), static_cast<std::uint32_t>(view_.next));
    ends_[view_.next % kLines] = view_.position;
    line.sequence.store(++view_.next, std::memory_order_release);
    return true;
  }

 private:
  void see_released() {
    const std::uint64_t released = view_.released->load(std::memory_order_acquire);
    if (released <= seen_) return;
    seen_ = released;
    view_.freed = ends_[(released - 1) % kLines];
  }

  RingView view_;
  std::array<std::uint64_t, kLines> ends_;  // The ends of the payloads, indexed by message.
  std::uint64_t seen_;                      // The number of messages known to be released.
};

class ViewReceiver {
 public:
  explicit ViewReceiver(const RingView& view) : view_(view) {}

  std::optional<std::vector<std::byte>> receive() {
    Line& line = view_.lines[view_.next % kLines];
    if (line.sequence.load(std::memory_order_acquire) != view_.next + 1) return std::nullopt;
    EXPECT_EQ(line.header.operation, view_.next);
    const std::size_t bytes = line.header.length;
    const std::byte* from = line.payload;
    if (bytes > kInlineBytes) {
      const std::uint64_t at = place(view_.position, bytes, view_.data_bytes);
      from = view_.data + at % view_.data_bytes;
      view_.position = at + padded(bytes);
    }
    std::vector<std::byte> payload(from, from + bytes);
    view_.released->store(++view_.next, std::memory_order_release);
    return payload;
  }

 private:
  RingView view_;
};

std::vector<std::byte> payload_of(std::uint64_t number, std::size_t most) {
  SeededRandom random(number);
  std::vector<std::byte> payload(random.next() % (number % 3 == 0 ? kInlineBytes + 1 : most + 1));
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random.next());
  return payload;
}

TEST(RingViews, AloneMoveMessagesOfAllSizesBetweenThreadsInOrder) {
  constexpr std::size_t kDataBytes = 64 * 21;
  constexpr std::uint64_t kMessages = 5000;
  TestRing ring(kDataBytes);
  const std::size_t most = SendRing::max_message_bytes(kDataBytes);
  std::jthread writer([&, view = ring.sender.view()] {
    ViewSender sender(view);
    for (std::uint64_t n = 0; n < kMessages; ++n)
      while (!sender.send(payload_of(n, most))) std::this_thread::yield();
  });
  ViewReceiver receiver(ring.receiver.view());
  for (std::uint64_t n = 0; n < kMessages;) {
    const auto payload = receiver.receive();
    if (!payload) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(*payload, payload_of(n++, most));
  }
}

TEST(RingViews, GoOnWhereTheirEndsHaveStoppedAndMeetAnEndOfTheHost) {
  constexpr std::size_t kDataBytes = 64 * 21;
  constexpr std::uint64_t kBefore = 41, kAfter = 500;
  for (const bool device_sends : {false, true}) {
    TestRing ring(kDataBytes);
    const std::size_t most = SendRing::max_message_bytes(kDataBytes);
    std::uint64_t sent = 0, received = 0;
    const auto send = [&] {
      const auto payload = payload_of(sent, most);
      std::byte* const to = ring.sender.acquire(payload.size());
      if (to == nullptr) return;
      if (!payload.empty()) std::memcpy(to, payload.data(), payload.size());
      ring.sender.post(of_length(payload.size(), static_cast<std::uint32_t>(sent++)));
    };
    const auto receive = [&] {
      if (!ring.receiver.peek()) return;
      const std::byte* from = ring.receiver.data();
      const std::vector<std::byte> payload(from, from + ring.receiver.header().length);
      ASSERT_EQ(payload, payload_of(received++, most));
      ring.receiver.release();
    };
    while (sent < kBefore) send(), receive();
    while (received < sent) receive();
    ViewSender sender(ring.sender.view());
    ViewReceiver receiver(ring.receiver.view());
    while (received < kAfter) {
      if (!device_sends)
        send();
      else if (sender.send(payload_of(sent, most)))
        ++sent;
      if (device_sends) {
        receive();
      } else if (const auto payload = receiver.receive()) {
        ASSERT_EQ(*payload, payload_of(received++, most));
      }
    }
  }
}

}  // namespace
}  // namespace tutti
