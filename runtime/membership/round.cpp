#include "runtime/membership/round.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/text.h"
#include "rendezvous/launch/launch_environment.h"
#include "runtime/diagnosis/record.h"
#include "runtime/membership/newcomer.h"
#include "runtime/membership/pauses.h"

namespace tutti {
namespace {

constexpr std::string_view kMade = "made", kAgain = "again";
// In place of a name where the members are too few to go on, and between members and newcomers.
constexpr std::string_view kTooFew = "too-few", kThen = "+";

std::string to_text(const Regrouped& all) {
  std::string text = all.too_few() ? std::string(kTooFew) : all.name;
  for (const int member : all.members) text += fmt::format(" {}", member);
  text += fmt::format(" {}", kThen);
  for (const std::int64_t newcomer : all.newcomers) text += fmt::format(" {}", newcomer);
  return text;
}

template <typename Number>
bool ascending(const std::vector<Number>& numbers) {
  return std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) ==
         numbers.end();
}

// Returns none for a text that to_text() has not written.
std::optional<Regrouped> parse(const std::string& text, std::size_t ranks) {
  Regrouped all;
  std::istringstream words(text);
  words >> all.name;
  if (all.name == kTooFew) all.name.clear();
  bool sane = true, then = false;
  for (std::string word; words >> word;) {
    const auto number = parse_number<std::int64_t>(word);
    if (word == kThen && !then)
      then = true;
    else if (!number || *number < 0 || (!then && static_cast<std::uint64_t>(*number) >= ranks))
      sane = false;
    else if (then)
      all.newcomers.push_back(*number);
    else
      all.members.push_back(static_cast<int>(*number));
  }
  sane = sane && then && !all.members.empty() && ascending(all.members) && ascending(all.newcomers);
  return sane ? std::optional(all) : std::nullopt;
}

std::optional<bool> is_made(const std::optional<std::string>& verdict) {
  return verdict ? std::optional(*verdict == kMade) : std::nullopt;
}

// One number says what a rank demands: the fewest ranks, the number of newcomers, and a digest of
// the ranks that it leaves out, each in bits of its own.
constexpr std::int64_t kNewcomer = std::int64_t{1} << 20, kWithout = std::int64_t{1} << 40;
static_assert(kMaxRanks < kNewcomer);

std::int64_t to_number(const Demands& demands) {
  constexpr std::uint64_t kDigests = 1u << 22;
  std::uint64_t digest = 0;
  for (const int rank : demands.without)
    digest = (digest * 31 + static_cast<std::uint64_t>(rank) + 1) % kDigests;
  return demands.least + demands.newcomers * kNewcomer +
         static_cast<std::int64_t>(digest) * kWithout;
}

}  // namespace

bool Regrouped::includes(int rank) const noexcept {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

Round::Round(Store& store, std::string place, int size, TimePoint deadline)
    : store_(store),
      place_(std::move(place)),
      deadline_(deadline),
      least_(static_cast<std::size_t>(size)),
      members_(store, key("members")),
      verdict_(store, key("verdict")) {}

void Round::come(int rank, const Demands& demands, TimePoint now) {
  assert(demands.least >= 1 && demands.newcomers >= 0);
  demands_ = demands;
  store_.add(key("here", rank), to_number(demands), soon(now));
}

bool Round::complete(const std::vector<bool>& lost, Newcomers& newcomers, TimePoint now) {
  assert(lost.size() == least_.size());
  bool all = true;
  for (std::size_t rank = 0; rank < least_.size(); ++rank) {
    if (!is_here(rank) && !lost[rank]) {
      const std::int64_t said = store_.add(key("here", static_cast<int>(rank)), 0, soon(now));
      least_[rank] = said % kNewcomer;
      if (said > 0) check_alike(rank, said);
    }
    all = all && (is_here(rank) || lost[rank]);
  }
  if (demands_.newcomers == 0) return all;
  newcomers_ = newcomers.waiting(store_, soon(now));
  if (newcomers_.size() > static_cast<std::size_t>(demands_.newcomers))
    newcomers_.resize(static_cast<std::size_t>(demands_.newcomers));
  return all;
}

void Round::check_alike(std::size_t rank, std::int64_t said) const {
  const std::int64_t newcomers = said % kWithout / kNewcomer;
  if (newcomers != demands_.newcomers)
    throw Error(
        ErrorKind::mismatch,
        fmt::format("grow: rank {} waits for {} newcomers, this rank for {}; all ranks must "
                    "name the same number",
                    rank, newcomers, demands_.newcomers));
  if (said / kWithout != to_number(demands_) / kWithout)
    throw Error(ErrorKind::mismatch,
                fmt::format("shrink: rank {} leaves out other ranks than this rank does; all must "
                            "name the same",
                            rank));
}

bool Round::enough(const std::vector<bool>& lost) const {
  const Regrouped all = present(lost);
  return static_cast<std::int64_t>(all.members.size()) >=
             *std::max_element(least_.begin(), least_.end()) &&
         all.newcomers.size() == static_cast<std::size_t>(demands_.newcomers);
}

int Round::awaited(const std::vector<bool>& lost) const {
  int missing = -1;
  for (std::size_t rank = least_.size(); rank-- > 0;)
    if (!is_here(rank) && !lost[rank]) missing = static_cast<int>(rank);
  if (missing >= 0 || enough(lost)) return missing;
  if (newcomers_.size() < static_cast<std::size_t>(demands_.newcomers)) return RingHead::kNewcomers;
  return static_cast<int>(std::find(lost.begin(), lost.end(), true) - lost.begin());
}

std::optional<Regrouped> Round::outcome(TimePoint now) { return parsed(members_.look(soon(now))); }

std::optional<Regrouped> Round::decide(const std::vector<bool>& lost, TimePoint now) {
  Regrouped all = present(lost);
  assert(!all.members.empty() && "this rank has come, and is not lost to itself");
  if (enough(lost)) {
    if (name_.empty())
      name_ = fmt::format("tutti/again/{}", store_.add("tutti/again", 1, soon(now)));
    all.name = name_;
  }
  return parsed(members_.propose(to_text(all), soon(now)));
}

void Round::join(TimePoint now) { store_.add(key("joined"), 1, soon(now)); }
bool Round::all_joined(std::size_t members, TimePoint now) {
  return store_.add(key("joined"), 0, soon(now)) == static_cast<std::int64_t>(members);
}
std::optional<bool> Round::verdict(TimePoint now) { return is_made(verdict_.look(soon(now))); }
std::optional<bool> Round::conclude(bool made, TimePoint now) {
  return is_made(verdict_.propose(made ? kMade : kAgain, soon(now)));
}

Regrouped Round::present(const std::vector<bool>& lost) const {
  Regrouped all;
  for (std::size_t rank = 0; rank < least_.size(); ++rank)
    if (is_here(rank) && !lost[rank]) all.members.push_back(static_cast<int>(rank));
  all.newcomers = newcomers_;
  return all;
}

std::optional<Regrouped> Round::parsed(const std::optional<std::string>& text) const {
  if (!text) return std::nullopt;
  std::optional<Regrouped> all = parse(*text, least_.size());
  if (!all)
    throw Error(ErrorKind::corrupt,
                fmt::format("the store says that {} are the ranks that are left, which cannot be",
                            shown(*text)));
  return all;
}

TimePoint Round::soon(TimePoint now) const { return std::max(deadline_, now + kStoreGrace); }
std::string Round::key(std::string_view what) const { return fmt::format("{}/{}", place_, what); }
std::string Round::key(std::string_view what, int rank) const {
  return fmt::format("{}/{}/{}", place_, what, rank);
}

void WatchedStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  store_->set(key, value, deadline);
}
std::int64_t WatchedStore::add(std::string_view key, std::int64_t amount, Deadline deadline) {
  return store_->add(key, amount, deadline);
}
void WatchedStore::wait(std::string_view key, Deadline deadline) {
  static_cast<void>(get(key, deadline));
}
std::string WatchedStore::get(std::string_view key, Deadline deadline) {
  return get_unless(key, {}, deadline);
}
void WatchedStore::set_when_gone(std::string_view key, std::string_view value, Deadline deadline) {
  store_->set_when_gone(key, value, deadline);
}
std::string WatchedStore::get_unless(std::string_view key, const Unless& unless,
                                     Deadline deadline) {
  // A store that is far away answers only if it is asked for longer than its answer takes.
  for (Nanoseconds slice = kWatchEvery;; slice = std::min<Nanoseconds>(2 * slice, kStoreGrace)) {
    // The clock of the stores' deadlines.
    const TimePoint look_at = std::chrono::steady_clock::now() + slice;
    try {
      return store_->get_unless(key, unless, std::min(deadline, look_at));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout || deadline <= look_at) throw;
    }
    check_();
  }
}

}  // namespace tutti
