#include "runtime/membership/regroup.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include <fmt/format.h>

#include "runtime/membership/newcomer.h"
#include "runtime/membership/pauses.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;

// The least time in which the members must join each other, where waiting for the others has used
// up all patience.
constexpr milliseconds kLeastToJoin{2000};
static_assert(kStoreGrace < kLeastToJoin);

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text.append(text.empty() ? "" : " ").append(std::to_string(rank));
  return text;
}

// The ranks of the old communicator, and how many newcomers, for messages.
std::string describe(const Regrouped& all) {
  return all.newcomers.empty() ? fmt::format("the ranks {}, which are left,", list(all.members))
                               : fmt::format("the ranks {} and {} newcomers", list(all.members),
                                             all.newcomers.size());
}

}  // namespace

Regrouping::Regrouping(std::shared_ptr<Store> store, std::string place, int rank, int size,
                       std::string call)
    : store_(std::move(store)),
      place_(std::move(place)),
      rank_(rank),
      size_(size),
      call_(std::move(call)) {
  assert(store_ != nullptr && !place_.empty() && rank >= 0 && rank < size);
}
Regrouping::~Regrouping() = default;

void Regrouping::begin(TimePoint now, milliseconds patience, const Demands& demands) {
  assert(demands.least >= 1 && demands.least <= size_);
  if (left_out_) throw *left_out_;
  assert(demands.without.empty() || demands.without.back() < size_);
  demands_ = demands;
  to_join_ = std::max(kLeastToJoin, patience / 4);
  until_ = now + patience;
  latest_ = until_ + to_join_;
  if (!under_way_) return begin_round(now);
  // An exception ended step() before this rank knew how that round ended. It gives the round up.
  round_ = make_round();
  phase_ = Phase::concluding;
  abandoned_ = true;
  next_step_ = now;
  pause_ = kFirstPause;
}

std::unique_ptr<Round> Regrouping::make_round() const {
  return std::make_unique<Round>(*store_, fmt::format("{}/{}", place_, rounds_), size_,
                                 until_ + to_join_);
}

void Regrouping::begin_round(TimePoint now) {
  assert(!under_way_ && !left_out_);
  under_way_ = true;
  round_ = make_round();
  phase_ = Phase::gathering;
  abandoned_ = false;
  not_joined_.reset();
  next_step_ = now;
  pause_ = kFirstPause;
  round_->come(rank_, demands_, now);
}

void Regrouping::end_round() {
  assert(under_way_);
  under_way_ = false;
  ++rounds_;
}

bool Regrouping::pause(TimePoint now) {
  next_step_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  assert(next_step_ > now && pause_ <= kLongestPause);
  return false;
}

// A rank that reaches the store first after that would find itself alone at the end of its
// patience.
void Regrouping::allow_for_stall(TimePoint now) {
  if (now - next_step_ < kStall || now > latest_) return;
  until_ = std::max<TimePoint>(until_, now + kAfterStall);
  round_->extend(until_ + to_join_);
}

bool Regrouping::step(TimePoint now, const Lost& lost, const Join& join, const Broken& broken) {
  assert(under_way_);
  if (now < next_step_) return false;
  if (phase_ == Phase::concluding) return conclude(now, lost, broken);
  allow_for_stall(now);
  const std::optional<Regrouped> decided = gather(now, lost);
  if (!decided) return pause(now);
  if (decided->too_few()) {
    end_round();
    if (decided->includes(rank_)) too_few(*decided);
    begin_round(now);  // they had given up before this rank came
    return false;
  }
  if (!decided->includes(rank_)) leave_out(*decided);
  regrouped_ = *decided;
  phase_ = Phase::concluding;
  awaited_ = -1;
  pause_ = kFirstPause;
  // Time passes while this rank joins the others, so the rest is left to the next call.
  join_members(now, lost, join);
  return false;
}

// Returns who the members are, once that is decided, by this rank or another one.
std::optional<Regrouped> Regrouping::gather(TimePoint now, const Lost& lost) {
  assert(phase_ == Phase::gathering && round_ != nullptr);
  if (auto decided = round_->outcome(now)) return decided;
  std::vector<bool> gone = lost();
  for (const int rank : demands_.without) gone[static_cast<std::size_t>(rank)] = true;
  const bool all = round_->complete(gone, newcomers_, now) && round_->enough(gone);
  if (demands_.newcomers > 0) check_none_lost(gone);
  awaited_ = round_->awaited(gone);
  if (!all && now < until_) return skip_abandoned(now);
  return round_->decide(gone, now);
}

// Goes on to the next round if a rank has given this one up before there were members.
std::optional<Regrouped> Regrouping::skip_abandoned(TimePoint now) {
  if (!round_->verdict(now)) return std::nullopt;
  // There are members if they have been decided meanwhile, which the next call finds.
  if (auto decided = round_->outcome(now)) return decided;
  end_round();
  begin_round(now);
  return std::nullopt;
}

void Regrouping::join_members(TimePoint now, const Lost& lost, const Join& join) {
  assert(regrouped_.includes(rank_) && !not_joined_);
  const auto check = [&, this] {
    const std::vector<bool> gone = lost();
    for (const int member : regrouped_.members)
      if (gone[static_cast<std::size_t>(member)])
        throw Error(ErrorKind::peer_lost,
                    fmt::format("rank {} heard that rank {} has ended", rank_, member));
    check_newcomers(regrouped_.newcomers);
    if (round_->verdict(std::chrono::steady_clock::now()))
      throw Error(ErrorKind::peer_lost,
                  fmt::format("rank {} heard that another rank has given up", rank_));
  };
  const auto watched = std::make_shared<WatchedStore>(store_, check);
  // Half of the time that is left, so that another round may follow where a member ends meanwhile.
  const TimePoint deadline = now + std::max<Nanoseconds>(to_join_, (until_ - now) / 2);
  try {
    if (regrouped_.members.front() == rank_)
      call_newcomers(*store_, regrouped_, round_->place(), size_,
                     std::chrono::ceil<milliseconds>(deadline - now), deadline);
    join(regrouped_, watched, deadline);
    round_->join(now);
  } catch (const Error& error) {
    not_joined_.emplace(
        error.kind(),
        fmt::format("rank {} of {}: of {} not all could join the new communicator ({}); call {}() "
                    "again{}",
                    rank_, size_, describe(regrouped_), error.what(), call_,
                    error.kind() != ErrorKind::timeout
                        ? ""
                        : fmt::format(", with more patience: they had {} ms of it for that",
                                      std::chrono::ceil<milliseconds>(deadline - now).count())));
  }
}

void Regrouping::check_newcomers(const std::vector<std::int64_t>& newcomers) const {
  for (const std::int64_t newcomer : newcomers)
    if (newcomer_has_ended(*store_, newcomer, std::chrono::steady_clock::now() + kStoreGrace))
      throw Error(ErrorKind::peer_lost,
                  fmt::format("rank {} heard that newcomer {} has ended", rank_, newcomer));
}

// All ranks of a communicator that grows take part.
void Regrouping::check_none_lost(const std::vector<bool>& lost) const {
  const auto gone = std::find(lost.begin(), lost.end(), true);
  if (gone == lost.end()) return;
  throw Error(ErrorKind::peer_lost,
              fmt::format("rank {} of {}: rank {} has ended: call shrink(), and let the new "
                          "communicator grow",
                          rank_, size_, gone - lost.begin()));
}

// Returns whether a member that had joined is known to have ended, or this rank gives up.
bool Regrouping::any_has_ended(const Lost& lost, const Broken& broken) const {
  try {
    const std::vector<bool> gone = lost();
    return broken() ||
           std::any_of(regrouped_.members.begin(), regrouped_.members.end(),
                       [&](int member) { return gone[static_cast<std::size_t>(member)]; });
  } catch (const Error&) {  // the next round, if there is one, meets it again
    return true;
  }
}

// Returns whether the round counts, once that is decided. Any member that sees that all have joined
// proposes that it does; any that has not joined, or sees one end, that it does not.
std::optional<bool> Regrouping::verdict(TimePoint now, const Lost& lost, const Broken& broken) {
  if (auto known = round_->verdict(now)) return known;
  if (abandoned_ || not_joined_) return round_->conclude(false, now);
  if (round_->all_joined(regrouped_.size(), now)) return round_->conclude(true, now);
  if (!any_has_ended(lost, broken) && now < round_->deadline()) return std::nullopt;
  return round_->conclude(false, now);
}

// Returns true where all have joined; else another round begins, or it throws.
bool Regrouping::conclude(TimePoint now, const Lost& lost, const Broken& broken) {
  assert(phase_ == Phase::concluding && under_way_);
  const std::optional<bool> made = verdict(now, lost, broken);
  if (!made) return pause(now);
  if (*made && (not_joined_ || abandoned_)) leave_out(round_->outcome(now).value());
  end_round();
  if (*made) return true;
  if (!abandoned_) check_another_round(now);
  begin_round(now);
  return false;
}

// Throws where no other round may begin.
void Regrouping::check_another_round(TimePoint now) const {
  const Error why = not_joined_.value_or(
      Error(ErrorKind::peer_lost,
            fmt::format("rank {} of {}: of {} another one could not join the new communicator; "
                        "call {}() again",
                        rank_, size_, describe(regrouped_), call_)));
  const bool passing = why.kind() == ErrorKind::peer_lost || why.kind() == ErrorKind::timeout;
  if (!passing || now + to_join_ > until_) throw why;
}

void Regrouping::too_few(const Regrouped& all) const {
  std::vector<int> absent;
  for (int rank = 0; rank < size_; ++rank)
    if (!all.includes(rank)) absent.push_back(rank);
  if (demands_.newcomers > 0)
    throw Error(
        ErrorKind::timeout,
        fmt::format("rank {} of {}: {} of the {} ranks called grow(){}{}, and {} of {} newcomers "
                    "called Communicator::join(), within the patience; this communicator "
                    "stays as it is",
                    rank_, size_, all.members.size(), size_,
                    absent.empty()       ? ""
                    : absent.size() == 1 ? ", not rank "
                                         : ", not the ranks ",
                    list(absent), all.newcomers.size(), demands_.newcomers));
  if (demands_.again)
    throw Error(ErrorKind::timeout,
                fmt::format("rank {} of {}: a new communicator has been made of this one before; "
                            "all {} of its ranks would have to call shrink() of this one again, "
                            "and within the patience only these did: {}. Use the new one, or end "
                            "this process if it is lost",
                            rank_, size_, demands_.least, list(all.members)));
  throw Error(ErrorKind::timeout,
              fmt::format("rank {} of {}: only the ranks {} are left and called shrink() within "
                          "the patience, fewer than one of them demands (this rank demands {}), so "
                          "none of them goes on; call shrink() again where others may still come, "
                          "or end this process",
                          rank_, size_, list(all.members), demands_.least));
}

void Regrouping::leave_out(Regrouped all) {
  // This rank may be among them: it joined, and then could not read that all had.
  std::erase(all.members, rank_);
  left_out_.emplace(
      ErrorKind::timeout,
      fmt::format("rank {} of {}: the others have made a new communicator without this rank, which "
                  "came too late or had lost its connections; it has ranks {}. Every later "
                  "{}() says the same: end this process, and let the others wait longer in "
                  "theirs where that was too soon",
                  rank_, size_, list(all.members), call_));
  throw *left_out_;
}

}  // namespace tutti
