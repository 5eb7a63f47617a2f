#include "one_thread.h"

#include <utility>

namespace tutti::test {

OneThread::OneThread(std::uint64_t seed, Config config) : random_(seed) {
  auto clock = std::make_unique<TickingClock>();
  clock_ = clock.get();
  runtime_ = std::make_shared<Runtime>(std::move(config), std::move(clock),
                                       std::make_unique<SeededRandom>(seed + 1), Threads::none);
}

CommunicatorParts OneThread::parts(std::shared_ptr<local::Hub> hub, int rank) {
  CommunicatorParts parts;
  parts.runtime = runtime_;
  parts.store = store_;
  parts.name = "tutti/1";
  parts.shared = std::make_shared<SharedEndpoint>();
  parts.machine_ranks = parts.size = hub->size();
  parts.shared->ring_bytes = 4096;
  parts.rank = rank;
  parts.message_bytes = 1024;
  TransportContext context;
  context.rank = rank;
  context.size = parts.size;
  context.clock = &runtime_->clock();
  context.random = &runtime_->random();
  context.data_bytes = parts.shared->ring_bytes;
  context.max_message_bytes = 1024;
  context.doorbell = parts.shared->doorbell;
  context.hub = std::move(hub);
  parts.transport = local::entry().make(context);
  parts.prices = std::make_shared<PriceList>(MachineCosts());
  return parts;
}

std::vector<std::optional<Communicator>> OneThread::communicators(int size) {
  const auto hub = std::make_shared<local::Hub>(size);
  std::vector<CommunicatorParts> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(parts(hub, rank));
  std::vector<std::optional<Communicator>> made;
  for (CommunicatorParts& one : all) {
    one.transport->connect({}, TimePoint());  // All ranks exist already.
    made.emplace_back(CommunicatorImpl::make(std::move(one)));
  }
  return made;
}

bool OneThread::drive(const std::function<bool()>& done,
                      const std::vector<std::function<void()>>& others) {
  constexpr int kMostTurns = 1'000'000;
  for (int turn = 0; turn < kMostTurns; ++turn) {
    if (done()) return true;
    const std::size_t drawn = draw(others.size() + 3);
    if (drawn < others.size())
      others[drawn]();
    else
      runtime_->step();
  }
  return false;
}

}  // namespace tutti::test
