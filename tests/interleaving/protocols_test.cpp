// Tests of the protocols by which two threads or processes meet in memory, under a weak memory
// model, in all executions of a few steps: rings, doorbells, status pages.
#include <cstring>
#include <optional>

#include "common/sync.h"
#include "runtime/engine/wait.h"
#include "tests/interleaving/meeting.h"
#include "tests/transport/ring/test_ring.h"
#include "transport/doorbell.h"
#include "transport/status_page.h"

namespace tutti::interleaving {
namespace {

// Rings.

constexpr std::size_t kDataBytes = 3 * kCacheLine;

/// A ring with messages that were sent and received before, so that lines, credits and payload
/// memory come round within a few messages.
struct RingMeeting {
  explicit RingMeeting(int sent, int received, std::size_t bytes) : length(bytes) {
    for (; next_in < received; ++next_in) {
      for (; next_out < sent && post_now();) continue;
      if (!ring.receiver.peek()) throw std::logic_error("the ring is empty");
      ring.receiver.release();
    }
    while (next_out < sent && post_now()) continue;
  }

  bool post_now() {
    std::byte* payload = ring.sender.acquire(length);
    if (payload == nullptr) return false;
    std::memset(payload, next_out & 0xff, length);
    ring.sender.post(of_length(length, static_cast<std::uint32_t>(next_out)));
    ++next_out;
    return true;
  }

  void send() {
    std::byte* payload = nullptr;
    while ((payload = ring.sender.acquire(length)) == nullptr) sync::yield();
    Header& header = ring.memory->lines[next_out % kLines].header;
    std::memset(payload, next_out & 0xff, length);
    sync::written(payload, length);
    sync::written(&header, sizeof header);
    ring.sender.post(of_length(length, static_cast<std::uint32_t>(next_out)));
    ++next_out;
  }
  void receive() {
    while (!ring.receiver.peek()) sync::yield();
    // Where peek() has copied it from.
    sync::read(&ring.memory->lines[next_in % kLines].header, sizeof(Header));
    require(ring.receiver.header().operation == static_cast<std::uint32_t>(next_in),
            "another message came");
    const std::byte* payload = ring.receiver.data();
    sync::read(payload, length);
    require(payload[0] == std::byte(next_in & 0xff), "another payload came");
    require(payload[length - 1] == std::byte(next_in & 0xff), "the payload is torn");
    ring.receiver.release();
    ++next_in;
  }

  TestRing ring{kDataBytes};
  const std::size_t length;
  int next_out = 0, next_in = 0;
};

struct SmallMessages : RingMeeting {
  SmallMessages() : RingMeeting(20, 20, 8) {}
};
struct SmallMessagesThatWrap : RingMeeting {  // The 64th release gives credit for all.
  SmallMessagesThatWrap() : RingMeeting(2 * static_cast<int>(kLines) - 2, kLines - 2, 8) {}
};
struct LargeMessages : RingMeeting {
  LargeMessages() : RingMeeting(1, 0, kCacheLine) {}
};

template <typename Shared, int kMessages>
Exploration explore_ring() {
  return explore<Shared>({[](Shared& s) {
                            for (int k = 0; k < kMessages; ++k) s.send();
                          },
                          [](Shared& s) {
                            const int until = s.next_in + kMessages;
                            while (s.next_in < until) s.receive();
                          }});
}

TEST(RingProtocol, SmallMessagesArriveWholeAndInOrder) {
  expect_holds(explore_ring<SmallMessages, 3>(), 1);
}

TEST(RingProtocol, LargeMessagesReuseTheirMemoryWhenItWasReleased) {
  expect_holds(explore_ring<LargeMessages, 3>(), 1);
}

TEST(RingProtocol, LinesAreReusedWhenTheyWereReleased) {
  // The sender goes on when the receiver has given credit, which comes every 16 messages.
  expect_holds(explore<SmallMessagesThatWrap>(
                   {[](SmallMessagesThatWrap& s) { s.send(), s.send(), s.send(); },
                    [](SmallMessagesThatWrap& s) {
                      const int until = s.next_in + 18;
                      while (s.next_in < until) s.receive();
                    }}),
               1);
}

// Answers: the receiver writes its answer into the memory of the message.

struct Answered {
  Answered() {
    to_back = {{0, &there.sender}};
    OutsideMemory outside;
    outside.back = &to_back;
    back.receiver = RecvRing(back.memory, kDataBytes, {}, 0, outside);
    OutsideMemory answers;
    answers.back = &none;
    there.receiver = RecvRing(there.memory, kDataBytes, {}, 0, answers);
  }

  /// Returns false where there is no memory for the message.
  bool try_ask(int number) {
    std::byte* const payload = there.sender.acquire(kBytes);
    if (payload == nullptr) return false;
    std::memset(payload, number, kBytes);
    sync::written(payload, kBytes);
    there.sender.post(of_length(kBytes));
    return true;
  }
  void ask(int number) {
    while (!try_ask(number)) sync::yield();
  }
  void take_answer(int number) {
    while (!back.receiver.peek()) sync::yield();
    const std::byte* answer = back.receiver.data();
    sync::read(answer, kBytes);
    require(answer[0] == std::byte(number + 1), "another answer came");
    back.receiver.release();
  }
  void answer(int number) {
    while (!there.receiver.peek()) sync::yield();
    sync::read(there.receiver.data(), kBytes);
    require(*there.receiver.data() == std::byte(number), "another message came");
    std::byte* const place = there.receiver.answer_data();
    require(place != nullptr, "it cannot be answered in place");
    while (!back.sender.acquire_at(there.receiver.place_for_answer())) sync::yield();
    std::memset(place, number + 1, kBytes);
    sync::written(place, kBytes);
    back.sender.post(of_length(kBytes));
    there.receiver.release_answered();
  }

  /// There is no room for two messages of this length.
  static constexpr std::size_t kBytes = 2 * kCacheLine;
  TestRing there{kDataBytes}, back{kDataBytes};
  SendRings to_back, none;
};

TEST(RingProtocol, AnswersLieInTheMemoryOfTheirMessagesUntilTheyWereRead) {
  expect_holds(explore<Answered>({[](Answered& s) {
                                    s.ask(1);
                                    require(!s.try_ask(2), "the answer was not read yet");
                                    s.take_answer(1), s.ask(2);
                                  },
                                  [](Answered& s) { s.answer(1); }}),
               2);
}

// Doorbells: a thread that sleeps is woken by what it waits for.

class StandingClock final : public Clock {
 public:
  TimePoint now() const override { return {}; }
};

/// The two ends of a ring, each in a process of its own that sleeps when it has nothing to do. The
/// descriptors are made once for all executions.
struct Sleepy {
  struct Process {
    Doorbell bell;
    Sleeper sleeper;
    StandingClock clock;
    Process() { sleeper.watch(bell.fd()); }
  };
  static Process& process(int number) {
    static Process processes[2];
    return processes[number];
  }

  Sleepy() {
    for (int end = 0; end < 2; ++end) {
      process(end).bell.clear();
      process(end).sleeper.sleep_until({}, process(end).clock);  // takes events that came before
    }
    ring.sender = SendRing(ring.memory, kDataBytes, bell_of(1));
    ring.receiver = RecvRing(ring.memory, kDataBytes, bell_of(0));
  }
  PeerBell bell_of(int end) { return {&pages[end].sleepers, process(end).bell.fd(), fences}; }

  /// Waits as a driver does (runtime/driver.cpp).
  template <typename Attempt>
  void await(int end, Attempt&& attempt) {
    Process& here = process(end);
    wait(
        WaitPolicy{1, 0, std::chrono::microseconds{0}}, here.clock, attempt, [] {},
        [&](auto&& last_look) {
          std::optional<Announced> announced;
          std::optional<AnnouncedToPeersThatFence> announced_to_others;
          if (fences)
            announced_to_others.emplace(pages[end].sleepers);
          else
            announced.emplace(pages[end].sleepers, here.bell);
          const bool ended = last_look();
          if (!ended) here.sleeper.sleep_until(TimePoint::max(), here.clock);
          return ended;
        });
  }
  /// Announces the sleep of a rank without membarrier(2), whose peers fence.
  struct AnnouncedToPeersThatFence {
    explicit AnnouncedToPeersThatFence(Sleepers& those) : sleepers(those) {
      sleepers.add();
      sync::fence(std::memory_order_seq_cst);
    }
    ~AnnouncedToPeersThatFence() { sleepers.remove(); }
    Sleepers& sleepers;
  };

  void send(int messages, std::size_t bytes) {
    for (; messages > 0; --messages) {
      std::byte* payload = nullptr;
      await(0, [&] { return (payload = ring.sender.acquire(bytes)) != nullptr; });
      ring.sender.post(of_length(bytes));
    }
  }
  void receive(int messages) {
    for (; messages > 0; --messages) {
      await(1, [&] { return ring.receiver.peek(); });
      ring.receiver.release();
    }
  }

  bool fences = false;
  StatusPage pages[2]{};
  TestRing ring{kDataBytes};
};

struct SleepyWithFences : Sleepy {
  SleepyWithFences() {
    fences = true;
    ring.sender = SendRing(ring.memory, kDataBytes, bell_of(1));
    ring.receiver = RecvRing(ring.memory, kDataBytes, bell_of(0));
  }
};
struct FullRing : Sleepy {
  FullRing() {
    while (ring.sender.acquire(kCacheLine) != nullptr) ring.sender.post(of_length(kCacheLine));
  }
};

template <typename Shared>
Exploration explore_sleep() {
  return explore<Shared>({[](Shared& s) { s.send(1, 8); }, [](Shared& s) { s.receive(1); }});
}

TEST(DoorbellProtocol, NobodySleepsThroughAMessage) {
  expect_holds(explore_sleep<Sleepy>(), 5);
  expect_holds(explore_sleep<SleepyWithFences>(), 5);
}

TEST(DoorbellProtocol, WhoSleepsAgainIsWokenAgain) {
  expect_holds(explore<Sleepy>({[](Sleepy& s) { s.send(2, 8); }, [](Sleepy& s) { s.receive(2); }}),
               5);
}

TEST(DoorbellProtocol, NobodySleepsThroughRoomForAMessage) {
  expect_holds(explore<FullRing>(
                   {[](FullRing& s) { s.send(1, kCacheLine); }, [](FullRing& s) { s.receive(1); }}),
               5);
}

// Status pages.

struct Pages {
  StatusPage page{};
};

constexpr StatusPage::Entry entry(std::uint64_t number) {
  return {number << 32, number & 0xff, number, 0};
}
void require_whole(const StatusPage& page, std::uint64_t number) {
  const auto call = page.call(number);
  require(!call || (call->algorithm == number && call->count == number &&
                    call->root == static_cast<int>(number & 0xff)),
          "the record is torn");
}

TEST(StatusPageProtocol, ARecordOfACallIsWholeOrMissing) {
  expect_holds(explore<Pages>({[](Pages& s) {
                                 s.page.record(1, entry(1));
                                 s.page.record(1 + StatusPage::kCalls,
                                               entry(1 + StatusPage::kCalls));
                               },
                               [](Pages& s) {
                                 require_whole(s.page, 1);
                                 require_whole(s.page, 1 + StatusPage::kCalls);
                               }}),
               5);
}

TEST(StatusPageProtocol, ACallThatWasEnteredIsRecorded) {
  expect_holds(explore<Pages>({[](Pages& s) { s.page.record(1, entry(1)); },
                               [](Pages& s) {
                                 if (s.page.entered.load(kAcquire) == 2)
                                   require(s.page.call(1).has_value(), "the record is missing");
                               }}),
               2);
}

TEST(StatusPageProtocol, AFailureIsWrittenBeforeItIsSeen) {
  expect_holds(explore<Pages>({[](Pages& s) {
                                 sync::written(s.page.failure.data(), 1);
                                 s.page.fail(ErrorKind::timeout, "late");
                               },
                               [](Pages& s) {
                                 if (s.page.state.load(kAcquire) != StatusPageState::failed) return;
                                 sync::read(s.page.failure.data(), 1);
                                 require(s.page.failure_text() == "late", "another text");
                               }}),
               2);
}

/// A message that lies in its sender's own memory.
struct ZeroCopy {
  ZeroCopy() {
    OutsideMemory outside;
    outside.page = &page;
    ring.receiver = RecvRing(ring.memory, kDataBytes, {}, 0, outside);
    ring.sender.acquire_at({.segment = 1});
    ring.sender.post(of_length(kCacheLine));
  }
  StatusPage page{};
  sync::Atomic<int> memory{0};
  TestRing ring{kDataBytes};
};

// The sender's call fails, and its program writes the memory again; the receiver, which has read
// it, asks whether what it read was still the message.
void fail_and_write(ZeroCopy& s, bool fences) {
  s.page.fail(ErrorKind::timeout, "late");
  if (fences) sync::fence(kSequential);  // as Failure::set() does
  s.memory.store(1, kRelaxed);
}
void read_and_ask(ZeroCopy& s) {
  require(s.ring.receiver.peek(), "there is no message");
  const int read = s.memory.load(kRelaxed);
  require(read == 0 || !s.ring.receiver.still_valid(), "what was read is no message");
}

TEST(StatusPageProtocol, AMessageThatItsSenderHasTakenBackIsNotTaken) {
  expect_holds(explore<ZeroCopy>({[](ZeroCopy& s) { fail_and_write(s, true); }, read_and_ask}), 4);
  EXPECT_THAT(
      explore<ZeroCopy>({[](ZeroCopy& s) { fail_and_write(s, false); }, read_and_ask}).failure,
      HasSubstr("what was read is no message"));
}

}  // namespace
}  // namespace tutti::interleaving
