#include "runtime/membership/split.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/wire.h"
#include "runtime/diagnosis/diagnosis.h"
#include "runtime/membership/setup.h"

namespace tutti {
namespace {

constexpr std::uint64_t kSplit = 1;
constexpr std::uint64_t kDup = 2;
constexpr std::uint64_t kShrink = 3;  // greater values stand for subgroups, by their ranks

std::string_view name_of(std::uint64_t form) {
  return form == kSplit ? "split" : form == kDup ? "dup" : form == kShrink ? "shrink" : "subgroup";
}

void check_forms(std::span<const SplitCard> cards, std::uint64_t own, int rank) {
  for (std::size_t peer = 0; peer < cards.size(); ++peer) {
    if (cards[peer].form == own) continue;
    const bool both = name_of(own) == name_of(cards[peer].form);
    throw Error(ErrorKind::mismatch,
                fmt::format("rank {} called {}, rank {} called {}{}: all ranks of a communicator "
                            "must make the same call",
                            rank, name_of(own), peer, name_of(cards[peer].form),
                            both ? " with other ranks" : ""));
  }
}

// Returns the members of one color, in the order of their new ranks.
std::vector<int> members_of(std::span<const SplitCard> cards, int color) {
  std::vector<int> members;
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    if (cards[rank].color == color) members.push_back(static_cast<int>(rank));
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return cards[a].key < cards[b].key; });
  return members;
}

// Returns a number that no other split of these connections has. It is taken before the ranks tell
// each other, so that threads which split sibling communicators at the same time get different
// ones.
std::uint32_t next_split(SharedEndpoint& shared) {
  const std::uint64_t number = ++*shared.splits;
  return number <= std::numeric_limits<std::uint32_t>::max() ? static_cast<std::uint32_t>(number)
                                                             : 0;
}

}  // namespace

SplitCard split_card(int color, int key) {
  if (color < 0 && color != kNoColor)
    throw Error(ErrorKind::usage,
                fmt::format("split: color {} is negative; give 0 or more, or tutti::kNoColor to be "
                            "in no new communicator",
                            color));
  SplitCard card;
  card.form = kSplit;
  card.color = color;
  card.key = key;
  return card;
}

SplitCard dup_card() {
  SplitCard card;
  card.form = kDup;
  return card;
}

SplitCard survivor_card() {
  SplitCard card;
  card.form = kShrink;
  return card;
}

SplitCard subgroup_card(std::span<const int> ranks, int rank, int size) {
  SplitCard card;
  card.form = kShrink + 1;
  card.color = kNoColor;
  std::vector<bool> named(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size || named[static_cast<std::size_t>(ranks[i])])
      throw Error(
          ErrorKind::usage,
          fmt::format("subgroup: rank {} {}; name each once, from 0 to {}", ranks[i],
                      ranks[i] < 0 || ranks[i] >= size ? "does not exist" : "is named twice",
                      size - 1));
    named[static_cast<std::size_t>(ranks[i])] = true;
    card.form = mix(card.form ^ static_cast<std::uint64_t>(ranks[i])) | 4;
    if (ranks[i] != rank) continue;
    card.color = 0;
    card.key = static_cast<std::int32_t>(i);
  }
  return card;
}

Splitting::Splitting(const CommunicatorParts& whole, const SplitCard& card)
    : whole_(whole), card_(card), cards_(static_cast<std::size_t>(whole.size)) {
  for (SplitCard& each : cards_) each = {card.form, -1, 0, 0, 0, 0};
  card_.number = next_split(*whole.shared);
  card_.ring_bytes = ring_bytes_for_one_more(whole);
}

Call Splitting::exchange() {
  return Call{{Collective::all_gather, DataType::uint8, kSplitOp, 0, sizeof card_},
              &card_,
              cards_.data(),
              {},
              {}};
}

bool Splitting::compare() {
  const SplitCard& own = cards_[static_cast<std::size_t>(whole_.rank)];
  check_forms(cards_, own.form, whole_.rank);
  if (own.color < 0) return false;

  subset_.members = members_of(cards_, own.color);
  const auto self = std::find(subset_.members.begin(), subset_.members.end(), whole_.rank);
  subset_.rank = static_cast<int>(self - subset_.members.begin());
  ring_bytes_ = std::numeric_limits<std::uint64_t>::max();
  for (const int member : subset_.members) {
    if (cards_[member].number == 0)
      throw Error(ErrorKind::unavailable,
                  fmt::format("rank {} has been asked for {} communicators since the start-up, all "
                              "that the connections can tell apart: make one anew",
                              member, std::numeric_limits<std::uint32_t>::max()));
    subset_.numbers.push_back(cards_[member].number);
    ring_bytes_ = std::min(ring_bytes_, cards_[member].ring_bytes);
  }
  return true;
}

void Splitting::make(TimePoint deadline) {
  assert(!subset_.members.empty() && !parts_);
  deadline_ = deadline;
  parts_ = parts_of_subset(whole_, subset_, ring_bytes_);
  missing_ = parts_->transport->join();
  made_ = whole_.runtime->clock().now();
}

bool Splitting::joined() {
  assert(parts_);
  missing_ = parts_->transport->join();
  return missing_.empty();
}

void Splitting::look(TimePoint now, bool owns_engine) {
  assert(parts_);
  const std::optional<Error> error = owns_engine ? why_hopeless() : std::nullopt;
  parts_->transport->progress();
  if (joined()) return;
  if (error) throw *error;
  if (now < deadline_) return;
  const bool shrinks = card_.form == kShrink;  // Its caller says what may be done.
  std::string ranks;
  for (const int member : missing_)
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", subset_.members[member]);
  throw Error(
      ErrorKind::timeout,
      fmt::format("{}: {} of the {} ranks of the new communicator did not come {}: rank {}{}",
                  heading(), missing_.size(), subset_.members.size(),
                  shrinks ? "in time" : "within the start-up timeout", ranks,
                  shrinks ? ""
                          : ". Find out what keeps them, or raise "
                            "TUTTI_STARTUP_TIMEOUT_MS"));
}

const Error& Splitting::give_up(const Error& error) noexcept {
  if (parts_) parts_->transport->own_status_page().fail(error.kind(), error.what());
  parts_.reset();
  return error;
}

CommunicatorParts Splitting::take_parts(TimePoint now) {
  assert(parts_ && missing_.empty());
  parts_->startup.push_back({"connect", now - made_});
  return *std::exchange(parts_, std::nullopt);
}

// Returns why the members will not all come. The caller looks for them once more before it throws
// the error: a member may have made its part before it ended.
std::optional<Error> Splitting::why_hopeless() const {
  for (int peer = 0; peer < whole_.size; ++peer) {
    if (peer == whole_.rank) continue;
    const PeerStatus status = whole_.transport->status(peer);
    if (status.state != PeerStatus::State::failed && !is_missing(peer)) continue;
    if (auto error = diagnose_state(heading(), *whole_.transport, peer, status)) return error;
    if (status.state == PeerStatus::State::closed && status.gone)
      return Error(
          ErrorKind::peer_lost,
          fmt::format("{}: rank {} has closed its communicator and ended", heading(), peer));
  }
  return std::nullopt;
}

std::string Splitting::heading() const {
  return fmt::format("rank {} of {}: {}", whole_.rank, whole_.size, name_of(card_.form));
}

bool Splitting::is_missing(int rank) const {
  return std::any_of(missing_.begin(), missing_.end(),
                     [&](int member) { return subset_.members[member] == rank; });
}

}  // namespace tutti
