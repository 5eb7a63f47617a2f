// Compares the matching of messages with receives with a model that searches lists from their
// oldest entry on.
#include "runtime/p2p/matching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <list>

#include "common/random.h"

namespace tutti {
namespace {

bool matches(const TransferCall& receive, int source, int tag) {
  return (receive.peer == kAnySource || receive.peer == source) &&
         (receive.tag == kAnyTag || receive.tag == tag);
}

// Both the matching and the model, which hold the same receives and messages.
class Compared {
 public:
  // Sends and receives use `sources` ranks and `tags` tags; one in `wild` has a wildcard of each
  // kind.
  Compared(std::uint64_t seed, int sources, int tags, std::uint64_t wild)
      : random_(seed), sources_(sources), tags_(tags), wild_(wild) {}

  void message() {
    const int source = below(sources_), tag = below(tags_);
    const auto expected =
        std::find_if(receives_.begin(), receives_.end(),
                     [&](const Transfer& receive) { return matches(receive.call, source, tag); });
    Transfer* const found = matching_.take_posted(source, tag);
    ASSERT_EQ(found, expected == receives_.end() ? nullptr : &*expected);
    if (found != nullptr) {
      receives_.erase(expected);
      return;
    }
    UnexpectedMessage& kept = matching_.keep(source, tag);
    kept.id = ++last_;
    messages_.push_back({source, tag, last_});
  }

  void receive() {
    TransferCall call;
    call.direction = Direction::recv;
    call.peer = below(static_cast<int>(wild_)) == 0 ? kAnySource : below(sources_);
    call.tag = below(static_cast<int>(wild_)) == 0 ? kAnyTag : below(tags_);
    const auto expected = std::find_if(messages_.begin(), messages_.end(), [&](const Kept& kept) {
      return matches(call, kept.source, kept.tag);
    });
    UnexpectedMessage* const found = matching_.take_unexpected(call);
    ASSERT_EQ(found != nullptr, expected != messages_.end());
    if (found == nullptr) {
      receives_.emplace_back().call = call;
      return matching_.post(receives_.back());
    }
    ASSERT_EQ(found->id, expected->id);
    ASSERT_EQ(found->source, expected->source);
    ASSERT_EQ(found->tag, expected->tag);
    matching_.forget(*found);
    messages_.erase(expected);
  }

  void ask() {
    const int source = below(2) == 0 ? kAnySource : below(sources_);
    const auto expected = std::find_if(messages_.begin(), messages_.end(), [&](const Kept& kept) {
      return source == kAnySource || kept.source == source;
    });
    const UnexpectedMessage* const found = matching_.oldest_from(source);
    ASSERT_EQ(found != nullptr, expected != messages_.end());
    if (found != nullptr) {
      ASSERT_EQ(found->id, expected->id);
    }
  }

  void clear() {
    matching_.clear();
    receives_.clear();
    messages_.clear();
  }

  int below(int bound) {
    return static_cast<int>(random_.next() % static_cast<std::uint64_t>(bound));
  }
  std::size_t most() const { return std::max(receives_.size(), messages_.size()); }

 private:
  struct Kept {
    int source, tag;
    std::uint32_t id;
  };

  SeededRandom random_;
  const int sources_, tags_;
  const std::uint64_t wild_;
  Matching matching_;
  std::list<Transfer> receives_;
  std::deque<Kept> messages_;
  std::uint32_t last_ = 0;
};

// Receives come first for a while, then messages, so that many of either are pending.
TEST(Matching, FindsWhatAListInOrderWouldFindInRandomSteps) {
  std::size_t most = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    Compared both(seed, 1 + static_cast<int>(random.next() % 6),
                  1 + static_cast<int>(random.next() % 40), 2 + random.next() % 30);
    int receives_of_8 = 4;
    for (int step = 0; step < 5000 && !testing::Test::HasFatalFailure(); ++step) {
      if (step % 500 == 0) receives_of_8 = 1 + both.below(7);
      if (both.below(8) < receives_of_8)
        both.receive();
      else
        both.message();
      if (both.below(50) == 0) both.ask();
      if (both.below(3000) == 0) both.clear();
      most = std::max(most, both.most());
    }
  }
  EXPECT_GT(most, 200u) << "the tables grew";
}

}  // namespace
}  // namespace tutti
