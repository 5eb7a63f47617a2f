#include "runtime/membership/shrink.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "common/text.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using StoreClock = std::chrono::steady_clock;  // The clock of the stores' deadlines.

// The pause between two requests to the store, which gets longer and longer, because many ranks ask
// one server.
constexpr milliseconds kFirstPause{1}, kLongestPause{50};
// How often a rank that waits for the store looks whether a member has ended.
constexpr milliseconds kWatchEvery{100};
// The time that a rank has to write its verdict to the store after its deadline has passed.
constexpr milliseconds kGrace{1000};
// The least time in which the members must join each other, where waiting for the others has used
// up all patience.
constexpr milliseconds kLeastToJoin{2000};
static_assert(kFirstPause < kLongestPause && kLongestPause < kWatchEvery && kGrace < kLeastToJoin);

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text.append(text.empty() ? "" : " ").append(std::to_string(rank));
  return text;
}

std::string to_text(const Survivors& survivors) {
  return fmt::format("{} {}", survivors.name, list(survivors.members));
}

Survivors parse(const std::string& text) {
  Survivors survivors;
  std::istringstream words(text);
  words >> survivors.name;
  for (int member = 0; words >> member;) survivors.members.push_back(member);
  return survivors;
}

/// A store whose waits throw `peer_lost` as soon as one of the given ranks has ended.
class WatchedStore final : public Store {
 public:
  WatchedStore(std::shared_ptr<Store> store, int rank, std::vector<int> members,
               Shrinking::Lost lost)
      : store_(std::move(store)),
        rank_(rank),
        members_(std::move(members)),
        lost_(std::move(lost)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    store_->set(key, value, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    return store_->add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override {
    static_cast<void>(get(key, deadline));
  }
  std::string get(std::string_view key, Deadline deadline) override {
    for (;;) {
      const TimePoint look_at = StoreClock::now() + kWatchEvery;
      try {
        return store_->get(key, std::min(deadline, look_at));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::timeout || deadline <= look_at) throw;
      }
      check_members();
    }
  }

 private:
  void check_members() const {
    const std::vector<bool> lost = lost_();
    assert(members_.empty() || static_cast<std::size_t>(members_.back()) < lost.size());
    for (const int member : members_)
      if (lost[static_cast<std::size_t>(member)])
        throw Error(ErrorKind::peer_lost,
                    fmt::format("rank {} heard that rank {} has ended", rank_, member));
  }

  const std::shared_ptr<Store> store_;
  const int rank_;
  const std::vector<int> members_;
  const Shrinking::Lost lost_;
};

}  // namespace

/// One round of the agreement, as one rank sees it.
class Shrinking::Round {
 public:
  Round(Store& store, std::string place, int size, TimePoint deadline)
      : store_(store),
        place_(std::move(place)),
        deadline_(deadline),
        here_(static_cast<std::size_t>(size)) {}

  void come(int rank) { store_.add(key("here", rank), 1, deadline_); }

  /// Returns whether all ranks are here except those that are lost.
  bool complete(const std::vector<bool>& lost) {
    assert(lost.size() == here_.size());
    bool all = true;
    for (std::size_t rank = 0; rank < here_.size(); ++rank) {
      if (!here_[rank] && !lost[rank])
        here_[rank] = store_.add(key("here", static_cast<int>(rank)), 0, deadline_) > 0;
      all = all && (here_[rank] || lost[rank]);
    }
    return all;
  }

  bool decided() { return store_.add(key("decided"), 0, deadline_) > 0; }

  /// Decides for all ranks who the members are, unless another rank is about to. A rank that has
  /// come and is lost again is not a member.
  void decide(const std::vector<bool>& lost) {
    if (store_.add(key("decided"), 1, deadline_) != 1) return;
    Survivors survivors;
    survivors.name = fmt::format("tutti/again/{}", store_.add("tutti/again", 1, deadline_));
    for (std::size_t rank = 0; rank < here_.size(); ++rank)
      if (here_[rank] && !lost[rank]) survivors.members.push_back(static_cast<int>(rank));
    assert(!survivors.members.empty() && "this rank has come, and is not lost to itself");
    store_.set(key("members"), to_text(survivors), deadline_);
  }

  Survivors outcome() {
    const std::string text = store_.get(key("members"), deadline_);
    Survivors survivors = parse(text);
    const std::vector<int>& members = survivors.members;
    // Ascending, and each once.
    const bool ordered =
        std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) == members.end();
    if (members.empty() || !ordered || members.front() < 0 ||
        static_cast<std::size_t>(members.back()) >= here_.size())
      throw Error(ErrorKind::corrupt, fmt::format("the store says that {} are the ranks that are "
                                                  "left, which cannot be",
                                                  shown(text)));
    return survivors;
  }

  /// This rank has joined the other `members`: the last one to join writes down that all have,
  /// unless a member has given up before, because another ended or did not come.
  void joined(std::size_t members, TimePoint now) {
    if (store_.add(key("joined"), 1, soon(now)) == static_cast<std::int64_t>(members))
      say(kMade, now);
  }
  /// Whether it is written down whether all have joined.
  bool concluded(TimePoint now) { return store_.add(key("said"), 0, soon(now)) > 0; }
  /// Whether all have joined, once that is written down.
  bool made(TimePoint now) { return store_.get(key("verdict"), soon(now)) == kMade; }

  /// This rank has not joined, or does not know whether all have. Returns false where it is written
  /// down already that all have.
  bool give_up(TimePoint now) {
    say(kAgain, now);
    return !made(now);
  }

  TimePoint deadline() const noexcept { return deadline_; }

 private:
  static constexpr std::string_view kMade = "made", kAgain = "again";

  void say(std::string_view verdict, TimePoint now) {
    if (store_.add(key("said"), 1, soon(now)) == 1) store_.set(key("verdict"), verdict, soon(now));
  }
  TimePoint soon(TimePoint now) const { return std::max(deadline_, now + kGrace); }
  std::string key(std::string_view what) const { return fmt::format("{}/{}", place_, what); }
  std::string key(std::string_view what, int rank) const {
    return fmt::format("{}/{}/{}", place_, what, rank);
  }

  Store& store_;
  const std::string place_;
  const TimePoint deadline_;
  std::vector<bool> here_;  // indexed by rank
};

Shrinking::Shrinking(std::shared_ptr<Store> store, std::string place, int rank, int size)
    : store_(std::move(store)), place_(std::move(place)), rank_(rank), size_(size) {
  assert(store_ != nullptr && !place_.empty() && rank >= 0 && rank < size);
}
Shrinking::~Shrinking() = default;

void Shrinking::begin(TimePoint now, milliseconds patience) {
  if (left_out_) throw *left_out_;
  to_join_ = std::max(kLeastToJoin, patience / 4);
  until_ = now + patience;
  // An exception ended step() before this rank knew how that round ended, so it asks now.
  if (under_way_) {
    Round round(*store_, fmt::format("{}/{}", place_, rounds_), size_, until_ + to_join_);
    if (!round.give_up(now)) leave_out(round.outcome().members);
    end_round();
  }
  begin_round(now);
}

void Shrinking::begin_round(TimePoint now) {
  assert(!under_way_ && !left_out_);
  under_way_ = true;
  round_ = std::make_unique<Round>(*store_, fmt::format("{}/{}", place_, rounds_), size_,
                                   until_ + to_join_);
  phase_ = Phase::gathering;
  not_joined_.reset();
  next_step_ = now;
  pause_ = kFirstPause;
  round_->come(rank_);
}

void Shrinking::end_round() {
  assert(under_way_);
  under_way_ = false;
  ++rounds_;
}

bool Shrinking::pause(TimePoint now) {
  next_step_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  assert(next_step_ > now && pause_ <= kLongestPause);
  return false;
}

bool Shrinking::step(TimePoint now, const Lost& lost, const Join& join) {
  assert(under_way_);
  if (now < next_step_) return false;
  if (phase_ == Phase::gathering) {
    if (!gather(now, lost)) return pause(now);
    // Time has passed meanwhile, so the rest is left to the next call.
    join_members(now, lost, join);
    phase_ = Phase::joining;
    pause_ = kFirstPause;
    return false;
  }
  if (!not_joined_ && !round_->concluded(now)) {
    const std::vector<bool> gone = lost();
    const bool all_live = std::none_of(survivors_.members.begin(), survivors_.members.end(),
                                       [&](int member) { return gone[member]; });
    if (all_live && now < round_->deadline()) return pause(now);
  }
  return conclude(now);
}

// Returns true once the members are written down, by this rank or another one.
bool Shrinking::gather(TimePoint now, const Lost& lost) {
  assert(phase_ == Phase::gathering && round_ != nullptr);
  if (!round_->decided()) {
    const std::vector<bool> gone = lost();
    if (!round_->complete(gone) && now < until_) return false;
    round_->decide(gone);
  }
  survivors_ = round_->outcome();
  const std::vector<int>& members = survivors_.members;
  if (std::find(members.begin(), members.end(), rank_) == members.end()) leave_out(members);
  return true;
}

void Shrinking::join_members(TimePoint now, const Lost& lost, const Join& join) {
  const std::vector<int>& members = survivors_.members;
  assert(std::find(members.begin(), members.end(), rank_) != members.end() && !not_joined_);
  const auto watched = std::make_shared<WatchedStore>(store_, rank_, members, lost);
  try {
    join(survivors_, watched, std::max(until_, now + to_join_));
    round_->joined(members.size(), now);
  } catch (const Error& error) {
    not_joined_.emplace(error.kind(),
                        fmt::format("rank {} of {}: of the ranks {}, which are left, not all could "
                                    "join the new communicator ({}); call shrink() again",
                                    rank_, size_, list(members), error.what()));
  }
}

// The round ends. Returns true where all have joined; else another one begins, or it throws.
bool Shrinking::conclude(TimePoint now) {
  assert(phase_ == Phase::joining && under_way_);
  const bool made = !round_->give_up(now);
  if (made && not_joined_) leave_out(survivors_.members);
  end_round();
  if (made) return true;
  const Error why = not_joined_.value_or(
      Error(ErrorKind::peer_lost,
            fmt::format("rank {} of {}: another of the ranks {} could not join the new "
                        "communicator; call shrink() again",
                        rank_, size_, list(survivors_.members))));
  const bool passing = why.kind() == ErrorKind::peer_lost || why.kind() == ErrorKind::timeout;
  if (!passing || now + to_join_ > until_) throw why;
  begin_round(now);
  return false;
}

void Shrinking::leave_out(std::vector<int> members) {
  // This rank may be among them: it joined, and then could not read that all had.
  std::erase(members, rank_);
  left_out_.emplace(
      ErrorKind::timeout,
      fmt::format("rank {} of {}: the others have made a new communicator without this rank, which "
                  "came too late or had lost its connections; it has ranks {}. Every later "
                  "shrink() says the same: end this process, and let the others wait longer in "
                  "theirs where that was too soon",
                  rank_, size_, list(members)));
  throw *left_out_;
}

}  // namespace tutti
