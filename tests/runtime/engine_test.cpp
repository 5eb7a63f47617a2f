// Tests the seam between a communicator and its engine, without a communicator.
#include "runtime/engine/engine.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/select.h"
#include "ranks.h"

namespace tutti::test {
namespace {

// Holds the engine of one rank, with a program and the buffers of its calls.
struct Part {
  Part(Ranks& ranks, int rank, std::uint64_t stripes)
      : transport(ranks.transport(rank)), engine(make_host_engine(transport, recorder, [] {})) {
    const std::uint32_t number = algorithm_index("ring");
    const CallSignature call{Collective::all_reduce, DataType::f32, Op::sum, 0,
                             values.size(),          number};
    const Schedule schedule = algorithms()[number].plan({call.what, rank, ranks.size(), 0});
    std::vector<Program> programs;
    for (std::uint64_t k = 0; k < stripes; ++k)
      programs.push_back(compile(schedule, call, Ranks::kMessageBytes, false, {k, stripes}));
    bound = engine->bind(std::move(programs));
  }

  void start() {
    values.fill(1);
    CallBuffers buffers;
    buffers.input = reinterpret_cast<const std::byte*>(values.data());
    buffers.output = reinterpret_cast<std::byte*>(values.data());
    buffers.extras = &extras;
    buffers.result_bytes = sizeof values;
    EXPECT_FALSE(engine->start(*bound, buffers, false, 0));
  }

  Transport& transport;
  Recorder recorder;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<BoundProgram> bound;
  CallExtras extras;
  std::array<float, 3001> values{};
};

TEST(HostEngine, DrawsTheNumberOfEachCallAndShowsPeersWhenItBeginsAndEnds) {
  for (const std::uint64_t stripes : {1u, 3u}) {
    Ranks ranks(TransportKind::local, 2, 1);
    Part a(ranks, 0, stripes), b(ranks, 1, stripes);
    const StatusPage& page = a.transport.own_status_page();
    for (std::uint64_t call = 0; call < 3; ++call) {
      a.start();
      EXPECT_EQ(a.engine->number(), call);
      EXPECT_EQ(a.engine->call(), a.bound->program.call);
      EXPECT_EQ(page.entered.load(), call + 1);
      EXPECT_EQ(page.completed.load(), call);
      EXPECT_FALSE(a.engine->advance(100));
      EXPECT_EQ(a.engine->awaited(-1), 1);
      EXPECT_EQ(a.engine->awaited(1), -1);
      b.start();
      bool a_done = false, b_done = false;
      for (int turn = 0; turn < 1000 && !(a_done && b_done); ++turn) {
        a_done = a_done || a.engine->advance(3);
        b_done = b_done || b.engine->advance(3);
      }
      ASSERT_TRUE(a_done && b_done);
      EXPECT_EQ(page.completed.load(), call + 1);
      EXPECT_EQ(a.engine->awaited(-1), -1);
      for (const float value : a.values) ASSERT_EQ(value, 2);
    }
  }
}

TEST(HostEngine, HoldsTheScratchOfItsLargestProgramOnceThatIsBound) {
  Ranks ranks(TransportKind::local, 3, 1);
  Recorder recorder;
  const std::unique_ptr<Engine> engine = make_host_engine(ranks.transport(0), recorder, [] {});
  EXPECT_EQ(engine->memory_bytes(), 0u);
  const CallSignature call{Collective::all_to_all,  DataType::uint8, Op::sum, 0, 100,
                           algorithm_index("bruck")};
  const Schedule schedule = algorithms()[call.algorithm].plan({call.what, 0, 3, 0});
  const Program program = compile(schedule, call, Ranks::kMessageBytes);
  ASSERT_GT(program.scratch_bytes, 0u);
  const auto bound = engine->bind({program});
  EXPECT_EQ(bound->program, program);
  EXPECT_EQ(engine->memory_bytes(), program.scratch_bytes);
}

// A transport between nobody, whose channels all have one remote message, and count what is asked
// of them.
class RemoteMessages final : public Transport {
 public:
  struct Recv final : RecvChannel {
    std::optional<Message> peek() override {
      return Message{ready ? payload.data() : nullptr, header, false, !ready};
    }
    const std::byte* get(const Memory& place) override {
      ++gets;
      EXPECT_FALSE(place) << "the step computes, so the payload has no place of its own";
      return ready ? payload.data() : nullptr;
    }
    void release() override { released = true; }

    Header header;
    std::vector<std::byte> payload;
    bool ready = false, released = false;
    int gets = 0;
  };
  struct Send final : SendChannel {
    std::optional<Span> acquire(std::size_t bytes) override {
      payload.resize(bytes);
      return Span{payload.data(), bytes};
    }
    void post(const Header&) override {}
    std::vector<std::byte> payload;
  };

  void connect(std::span<const std::string>, TimePoint) override {}
  const LinkCapabilities& link(int) const override { return link_; }
  SendChannel& sender(int peer, int) override { return senders[peer]; }
  RecvChannel& receiver(int peer, int) override { return receivers[peer]; }
  void progress() override {}
  PeerStatus status(int) override { return {}; }
  StatusPage& own_status_page() override { return page_; }
  const StatusPage* status_page(int) override { return &page_; }
  void wake(int) override {}
  void close() noexcept override {}

  std::map<int, Recv> receivers;
  std::map<int, Send> senders;

 private:
  LinkCapabilities link_;
  StatusPage page_{};
};

TEST(HostEngine, BringsAllRemoteMessagesOfAStepAtTheSameTime) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 2048;
  RemoteMessages transport;
  Recorder recorder;
  const std::unique_ptr<Engine> engine = make_host_engine(transport, recorder, [] {});
  const CallSignature call{Collective::all_reduce,     DataType::f32, Op::sum, 0, kCount,
                           algorithm_index("one_shot")};
  const Schedule schedule = algorithms()[call.algorithm].plan({call.what, 0, kRanks, 0});
  const auto bound =
      engine->bind({compile(schedule, call, kCount * sizeof(float), /*zero_copy=*/true)});
  std::vector<float> values(kCount, 1);
  CallBuffers buffers;
  buffers.input = buffers.output = reinterpret_cast<std::byte*>(values.data());
  const CallExtras extras;
  buffers.extras = &extras;
  buffers.zero_copy.emplace().ordinary = true;
  for (int peer = 1; peer < kRanks; ++peer) {
    auto& from = transport.receivers[peer];
    from.header = {0, bound->program.fingerprint, kCount * sizeof(float), 0};
    from.payload.resize(kCount * sizeof(float));
    const std::vector<float> theirs(kCount, static_cast<float>(peer));
    std::memcpy(from.payload.data(), theirs.data(), from.payload.size());
  }
  EXPECT_FALSE(engine->start(*bound, buffers, false, 1));
  for (int peer = 1; peer < kRanks; ++peer)
    EXPECT_EQ(transport.receivers[peer].gets, 1) << "from rank " << peer;
  for (int peer = kRanks - 1; peer > 0; --peer) {  // They arrive in the other order.
    EXPECT_FALSE(engine->advance(1));
    transport.receivers[peer].ready = true;
  }
  EXPECT_TRUE(engine->advance(1));
  EXPECT_EQ(values, std::vector<float>(kCount, 1 + 1 + 2 + 3));
  for (int peer = 1; peer < kRanks; ++peer) EXPECT_TRUE(transport.receivers[peer].released);
}

}  // namespace
}  // namespace tutti::test
