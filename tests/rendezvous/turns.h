// Ranks that take turns: between any two requests to their store another rank may run, as a seed
// decides, and a rank may end there for ever.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/store.hpp>

#include "common/random.h"
#include "rendezvous/store/memory_store.h"

namespace tutti::test {

/// Thrown in the body of a rank that ends. It is not a std::exception, so that nobody takes it for
/// an error.
struct Ended {};

/// A turn that one thread gives to another.
class Baton {
 public:
  void release() {
    const std::lock_guard lock(mutex_);
    given_ = true;
    changed_.notify_one();
  }
  void acquire() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return given_; });
    given_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_ = false;
};

/// Runs the bodies of ranks, each on a thread of its own, of which one runs at a time.
class Turns {
 public:
  Turns(int ranks, std::uint64_t seed) : random_(seed), ranks_(static_cast<std::size_t>(ranks)) {
    for (auto& rank : ranks_) rank = std::make_unique<Rank>();
  }

  /// The rank's store, in memory. It ends the rank at request `last`, counted from 0: after the
  /// request was made if `made` is set, else before.
  std::shared_ptr<Store> store(int rank, std::optional<int> last = std::nullopt, bool made = false);

  /// Gives all ranks turns until all have ended. Returns false if that takes too long.
  bool run(const std::function<void(int rank)>& body) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      ranks_[rank]->thread = std::jthread([this, rank, &body] {
        ranks_[rank]->turn.acquire();
        try {
          if (!too_long_) body(static_cast<int>(rank));
        } catch (const Ended&) {
          ranks_[rank]->lost = true;
        }
        ranks_[rank]->over = true;
        scheduler_.release();
      });
    std::vector<Rank*> running;
    for (const auto& rank : ranks_) running.push_back(rank.get());
    for (int turns = 0; !running.empty(); ++turns) {
      too_long_ = turns > kMostTurns;
      Rank* const next = running[random_.next() % running.size()];
      next->turn.release();
      scheduler_.acquire();
      if (next->over) std::erase(running, next);
    }
    return !too_long_;
  }

  /// Lets another rank run. Ends the rank where the run takes too long.
  void pass(int rank) {
    scheduler_.release();
    ranks_[static_cast<std::size_t>(rank)]->turn.acquire();
    if (too_long_) throw Ended();
  }

  bool lost(int rank) const { return ranks_[static_cast<std::size_t>(rank)]->lost; }
  std::vector<bool> lost() const {
    std::vector<bool> all;
    for (const auto& rank : ranks_) all.push_back(rank->lost);
    return all;
  }

 private:
  class TurnStore;
  struct Rank {
    Baton turn;
    bool lost = false;  // it ended before its body did
    bool over = false;
    std::jthread thread;
  };
  static constexpr int kMostTurns = 100'000;

  SeededRandom random_;
  Baton scheduler_;
  bool too_long_ = false;
  std::vector<std::unique_ptr<Rank>> ranks_;
  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
};

class Turns::TurnStore final : public Store {
 public:
  TurnStore(Turns& turns, int rank, std::optional<int> last, bool made)
      : turns_(turns), rank_(rank), last_(last), made_(made) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    request([&] { turns_.store_->set(key, value, deadline); });
  }
  // A key that nobody has set is a `timeout` at once, since nobody sets it during this turn.
  std::string get(std::string_view key, Deadline) override {
    std::string value;
    request([&] { value = turns_.store_->get(key, {}); });
    return value;
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    std::int64_t sum = 0;
    request([&] { sum = turns_.store_->add(key, amount, deadline); });
    return sum;
  }
  void wait(std::string_view key, Deadline deadline) override {
    static_cast<void>(get(key, deadline));
  }

 private:
  template <typename Make>
  void request(Make make) {
    turns_.pass(rank_);
    const bool is_last = last_ && requests_++ == *last_;
    if (is_last && !made_) throw Ended();
    make();
    if (is_last) throw Ended();
  }

  Turns& turns_;
  const int rank_;
  const std::optional<int> last_;
  const bool made_;
  int requests_ = 0;
};

inline std::shared_ptr<Store> Turns::store(int rank, std::optional<int> last, bool made) {
  return std::make_shared<TurnStore>(*this, rank, last, made);
}

}  // namespace tutti::test
