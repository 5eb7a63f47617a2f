#include "runtime/membership/shrink.h"

#include <algorithm>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

using std::chrono::milliseconds;
using StoreClock = std::chrono::steady_clock;  // The clock of the stores' deadlines.

// Between two looks into the store, longer and longer: many ranks ask one server.
constexpr milliseconds kFirstPause{1}, kLongestPause{50};
// How often a rank that waits for the store looks whether a member has ended.
constexpr milliseconds kWatchEvery{100};
// The time that a rank has to write its verdict to the store after its deadline has passed.
constexpr milliseconds kGrace{1000};
// The least time in which the members must join each other, where waiting for the others has used
// up all patience.
constexpr milliseconds kLeastToJoin{2000};

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

  /// Whether all are here but those.
  bool complete(const std::vector<bool>& lost) {
    bool all = true;
    for (std::size_t rank = 0; rank < here_.size(); ++rank) {
      if (!here_[rank] && !lost[rank])
        here_[rank] = store_.add(key("here", static_cast<int>(rank)), 0, deadline_) > 0;
      all = all && (here_[rank] || lost[rank]);
    }
    return all;
  }

  bool decided() { return store_.add(key("decided"), 0, deadline_) > 0; }

  /// For all, unless another is about to. Who has come and is lost again is not among them.
  void decide(const std::vector<bool>& lost) {
    if (store_.add(key("decided"), 1, deadline_) != 1) return;
    Survivors survivors;
    survivors.name = fmt::format("tutti/again/{}", store_.add("tutti/again", 1, deadline_));
    for (std::size_t rank = 0; rank < here_.size(); ++rank)
      if (here_[rank] && !lost[rank]) survivors.members.push_back(static_cast<int>(rank));
    store_.set(key("members"), to_text(survivors), deadline_);
  }

  Survivors outcome() { return parse(store_.get(key("members"), deadline_)); }

  /// This rank has joined the other `members`. Returns whether all of them have: the last one to
  /// join writes that down, unless a member has given up before, because another ended or did not
  /// come.
  bool conclude(Store& watched, std::size_t members) {
    if (store_.add(key("joined"), 1, soon()) == static_cast<std::int64_t>(members)) say(kMade);
    try {
      return watched.get(key("verdict"), deadline_) == kMade;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout && error.kind() != ErrorKind::peer_lost) throw;
    }
    return !give_up();
  }

  /// This rank has not joined, or does not know whether all have. Returns false where it is written
  /// down already that all have.
  bool give_up() {
    say(kAgain);
    return store_.get(key("verdict"), soon()) == kAgain;
  }

 private:
  static constexpr std::string_view kMade = "made", kAgain = "again";

  void say(std::string_view verdict) {
    if (store_.add(key("said"), 1, soon()) == 1) store_.set(key("verdict"), verdict, soon());
  }
  TimePoint soon() const { return std::max(deadline_, StoreClock::now() + kGrace); }
  std::string key(std::string_view what) const { return fmt::format("{}/{}", place_, what); }
  std::string key(std::string_view what, int rank) const {
    return fmt::format("{}/{}/{}", place_, what, rank);
  }

  Store& store_;
  const std::string place_;
  const TimePoint deadline_;
  std::vector<bool> here_;  // by rank
};

void Shrinking::run(milliseconds patience, const Lost& lost, const Join& join) {
  if (left_out_) throw *left_out_;
  const milliseconds to_join = std::max(kLeastToJoin, patience / 4);
  const TimePoint until = StoreClock::now() + patience;
  for (;;) {
    Round round(*store_, fmt::format("{}/{}", place_, rounds_), size_, until + to_join);
    const bool resumed = std::exchange(under_way_, true);
    std::optional<Error> why;
    if (!resumed) {
      why = attempt(round, until, to_join, lost, join);
      if (!why) break;
    } else if (!round.give_up()) {
      leave_out(round.outcome().members);
    }
    under_way_ = false;
    ++rounds_;
    if (resumed) continue;
    const bool passing = why->kind() == ErrorKind::peer_lost || why->kind() == ErrorKind::timeout;
    if (!passing || StoreClock::now() + to_join > until) throw *why;
  }
  under_way_ = false;
  ++rounds_;
}

// Returns no error when the new communicator has been made. An exception leaves open how the round
// ends; the next call of shrink() finds out first.
std::optional<Error> Shrinking::attempt(Round& round, TimePoint until, milliseconds to_join,
                                        const Lost& lost, const Join& join) {
  round.come(rank_);
  for (milliseconds pause = kFirstPause; !round.decided();
       pause = std::min(2 * pause, kLongestPause)) {
    const std::vector<bool> gone = lost();
    if (round.complete(gone) || StoreClock::now() >= until) {
      round.decide(gone);
      break;
    }
    std::this_thread::sleep_for(pause);
  }
  const Survivors survivors = round.outcome();
  const std::vector<int>& members = survivors.members;
  if (std::find(members.begin(), members.end(), rank_) == members.end()) leave_out(members);
  const auto watched = std::make_shared<WatchedStore>(store_, rank_, members, lost);
  std::optional<Error> why;
  try {
    join(survivors, watched, std::max(until, StoreClock::now() + to_join));
  } catch (const Error& error) {
    why.emplace(error.kind(), fmt::format("rank {} of {}: of the ranks {}, which are left, not all "
                                          "could join the new communicator ({}); call shrink() "
                                          "again",
                                          rank_, size_, list(members), error.what()));
  }
  if (!why && round.conclude(*watched, members.size())) return std::nullopt;
  if (why && !round.give_up()) leave_out(members);
  if (why) return why;
  return Error(ErrorKind::peer_lost,
               fmt::format("rank {} of {}: another of the ranks {} could not join the new "
                           "communicator; call shrink() again",
                           rank_, size_, list(members)));
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
