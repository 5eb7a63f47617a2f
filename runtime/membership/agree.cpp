#include "runtime/membership/agree.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/text.h"
#include "runtime/membership/pauses.h"

namespace tutti {

using std::chrono::milliseconds;

Agreeing::Agreeing(std::shared_ptr<Store> store, std::string place, int rank, int size)
    : store_(std::move(store)), place_(std::move(place)), rank_(rank), size_(size) {
  assert(store_ != nullptr && !place_.empty() && rank >= 0 && rank < size);
}

void Agreeing::begin(TimePoint now, std::uint64_t flags, milliseconds patience) {
  until_ = now + patience;
  next_step_ = now;
  pause_ = kFirstPause;
  if (decision_) return;  // An exception ended the last one.
  told_ = false;
  flags_ = fmt::format("{}", flags);
  here_.assign(static_cast<std::size_t>(size_), false);
  decision_.emplace(*store_, fmt::format("{}/{}/result", place_, number_));
}

std::optional<Agreement> Agreeing::step(TimePoint now, const Lost& lost) {
  assert(decision_ && "begin() has been called");
  if (now < next_step_) return std::nullopt;
  const Store::Deadline deadline = std::max(until_, now) + kStoreGrace;
  if (!told_) {
    store_->set(key("flags", rank_), flags_, deadline);
    store_->add(key("here", rank_), 1, deadline);
    told_ = true;
  }
  std::optional<std::string> result = decision_->look(deadline);
  if (!result && (complete(lost(), deadline) || now >= until_))
    result = decision_->propose(proposal(deadline), deadline);
  if (!result) {
    next_step_ = now + std::exchange(pause_, std::min(2 * pause_, kLongestPause));
    return std::nullopt;
  }
  const Agreement agreement = parsed(*result);
  decision_.reset();
  ++number_;
  return agreement;
}

// Returns whether the flags of all ranks are there except those of ranks that are lost.
bool Agreeing::complete(const std::vector<bool>& lost, Store::Deadline deadline) {
  assert(lost.size() == here_.size());
  awaited_ = -1;
  for (int rank = 0; rank < size_; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    // A rank that told its flags before it ended took part.
    if (!here_[at]) here_[at] = store_->add(key("here", rank), 0, deadline) > 0;
    if (!here_[at] && !lost[at] && awaited_ < 0) awaited_ = rank;
  }
  return awaited_ < 0;
}

// The AND, and behind it the absent ranks, in decimal, with blanks between.
std::string Agreeing::proposal(Store::Deadline deadline) const {
  std::uint64_t flags = std::numeric_limits<std::uint64_t>::max();
  std::string absent;
  for (int rank = 0; rank < size_; ++rank) {
    if (!here_[static_cast<std::size_t>(rank)]) {
      absent += fmt::format(" {}", rank);
      continue;
    }
    const std::string text = store_->get(key("flags", rank), deadline);
    const auto theirs = parse_number<std::uint64_t>(text);
    if (!theirs)
      throw Error(ErrorKind::corrupt,
                  fmt::format("the store says that the flags of rank {} in agree() are {}, which "
                              "cannot be",
                              rank, shown(text)));
    flags &= *theirs;
  }
  return fmt::format("{}{}", flags, absent);
}

Agreement Agreeing::parsed(const std::string& text) const {
  Agreement agreement;
  std::istringstream words(text);
  bool sane = !!(words >> agreement.flags);
  for (int rank = 0; words >> rank;) {
    sane = sane && rank < size_ && rank > (agreement.absent.empty() ? -1 : agreement.absent.back());
    agreement.absent.push_back(rank);
  }
  if (!sane || !words.eof())
    throw Error(
        ErrorKind::corrupt,
        fmt::format("the store says that the ranks agreed on {}, which cannot be", shown(text)));
  return agreement;
}

std::string Agreeing::key(std::string_view what, int rank) const {
  return fmt::format("{}/{}/{}/{}", place_, number_, what, rank);
}

}  // namespace tutti
