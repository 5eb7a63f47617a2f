#include "runtime/shrink.h"

#include <algorithm>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti {
namespace {

using std::chrono::milliseconds;

// Between two looks into the store, longer and longer: many ranks ask one server.
constexpr milliseconds kFirstPause{1}, kLongestPause{50};

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

/// One agreement, as one rank sees it.
class Agreement {
 public:
  Agreement(Store& store, std::string place, int size, TimePoint deadline)
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

 private:
  std::string key(std::string_view what) const { return fmt::format("{}/{}", place_, what); }
  std::string key(std::string_view what, int rank) const {
    return fmt::format("{}/{}/{}", place_, what, rank);
  }

  Store& store_;
  const std::string place_;
  const TimePoint deadline_;
  std::vector<bool> here_;  // by rank
};

}  // namespace

Survivors agree_on_survivors(Store& store, const std::string& place, int rank, int size,
                             const std::function<std::vector<bool>()>& lost, TimePoint until,
                             TimePoint deadline) {
  Agreement agreement(store, place, size, deadline);
  agreement.come(rank);
  for (milliseconds pause = kFirstPause; !agreement.decided();
       pause = std::min(2 * pause, kLongestPause)) {
    const std::vector<bool> gone = lost();
    if (agreement.complete(gone) || std::chrono::steady_clock::now() >= until) {
      agreement.decide(gone);
      break;
    }
    std::this_thread::sleep_for(pause);
  }
  Survivors survivors = agreement.outcome();
  if (std::find(survivors.members.begin(), survivors.members.end(), rank) ==
      survivors.members.end())
    throw Error(ErrorKind::timeout,
                fmt::format("rank {} of {}: the others have made a new communicator without this "
                            "rank, which came too late or had lost its connections; it has ranks "
                            "{}. Let them wait longer in shrink(), or end this process",
                            rank, size, list(survivors.members)));
  return survivors;
}

}  // namespace tutti
