// Tests of bytes that change on their way between two ranks: which error each rank of the job gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "../transport/middle.h"
#include "rendezvous/roster.h"
#include "threads.h"
#include "transport/tcp/address.h"

namespace tutti::test {
namespace {

/// A store in which the address of a rank is replaced by that of a process between it and its
/// peers.
class Misled final : public Store {
 public:
  explicit Misled(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    if (!key.ends_with("/hello/1")) return store_->set(key, value, deadline);
    Roster said = decode_roster(value, 1);  // It holds the entry of rank 1 alone.
    Texts& column = said.columns.back();
    const std::string made = "tcp\n";  // This is the transport that was created ahead.
    tcp::Address address = tcp::Address::parse(column[0].substr(made.size())).value();
    for (const SocketAddress& place : address.places)
      if (place.host == "127.0.0.1") middle_.emplace(place);
    address.places = {middle().place()};
    column = Texts(made + address.to_string());
    store_->set(key, encode(said), deadline);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    return store_->get(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    return store_->add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override { store_->wait(key, deadline); }

  Middle& middle() { return middle_.value(); }

 private:
  const std::shared_ptr<Store> store_;
  std::optional<Middle> middle_;
};

class Damage : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(All, Damage, testing::Bool(), [](const auto& with) {
  return std::string(with.param ? "WithTls" : "WithChecksums");
});

TEST_P(Damage, IsToldToEveryRankWithItsKindTheRanksAndTheOperation) {
  Config config = quick_config("tcp");
  config.timeout = config.startup_timeout = std::chrono::minutes(10);  // No rank waits for so long.
  (GetParam() ? config.tls : config.checksum) = true;
  const auto store = std::make_shared<MemoryStore>();
  const auto misled = std::make_shared<Misled>(store);
  std::vector<std::string> outcomes(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      outcomes[static_cast<std::size_t>(rank)] = outcome_of([&] {
        const std::shared_ptr<Store> own = rank == 1 ? std::shared_ptr<Store>(misled) : store;
        Communicator comm = Communicator::create(own, rank, 3, config);
        comm.barrier();
        if (rank == 1) misled->middle().flip(false, 50'000);  // The byte is on the way to rank 2.
        std::vector<float> data(200'000, 1);
        for (;;) comm.all_reduce(std::span(data));
      });
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& outcome : outcomes)
    EXPECT_THAT(outcome, AllOf(StartsWith("corrupt"), HasSubstr("all_reduce"), HasSubstr("#"),
                               HasSubstr("Do not use the results")));
  // With TLS both ends notice it, and rank 2 may first be notified of it by rank 1.
  const bool reported = outcomes[2].find("what comes from rank 1") != std::string::npos ||
                        (GetParam() && outcomes[2].find("rank 1 has failed") != std::string::npos);
  EXPECT_TRUE(reported) << outcomes[2];
}

}  // namespace
}  // namespace tutti::test
