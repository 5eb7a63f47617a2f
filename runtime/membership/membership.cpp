#include "runtime/membership/membership.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "rendezvous/launch/launch_environment.h"
#include "runtime/call.h"
#include "runtime/membership/kept_connections.h"
#include "runtime/membership/setup.h"

namespace tutti {

std::vector<bool> ended_ranks(const CommunicatorParts& parts) {
  assert(parts.rank >= 0 && parts.rank < parts.size);
  parts.transport->progress();
  std::vector<bool> gone(static_cast<std::size_t>(parts.size));
  for (int peer = 0; peer < parts.size; ++peer) {
    if (peer == parts.rank) continue;
    // A rank that failed and then ended still shows `failed` on its status page, hence `gone`.
    const PeerStatus status = parts.transport->status(peer);
    gone[static_cast<std::size_t>(peer)] = status.gone || status.state == PeerStatus::State::closed;
  }
  return gone;
}

void Membership::check(std::string_view call, std::chrono::milliseconds patience) const {
  if (parts_.name.empty())
    throw Error(ErrorKind::usage,
                fmt::format("{0}: this communicator was split off another or made in one process; "
                            "{0} the one that came from the environment or from a store, and split "
                            "that",
                            call));
  if (!parts_.runtime->in_own_process())
    throw Error(ErrorKind::usage,
                fmt::format("{}: this process was forked after the communicator was made", call));
  if (!is_timeout(patience))
    throw Error(ErrorKind::usage, fmt::format("{}: {}", call, not_a_timeout(patience)));
}

void Membership::check_shrink(std::chrono::milliseconds patience, const Demands& demands) const {
  check("shrink", patience);
  for (const int rank : demands.without)
    if (rank < 0 || rank >= parts_.size || rank == parts_.rank)
      throw Error(ErrorKind::usage,
                  fmt::format("shrink: without rank {}, on rank {} of {}; it takes the ranks of "
                              "others, and only those that go on call it",
                              rank, parts_.rank, parts_.size));
  if (std::adjacent_find(demands.without.begin(), demands.without.end()) != demands.without.end())
    throw Error(ErrorKind::usage, "shrink: the list of the ranks to leave out has one twice");
  const int least = demands.least;
  if (least < 1 || least > parts_.size)
    throw Error(
        ErrorKind::usage,
        fmt::format("shrink: at least {} ranks are to go on; there are {}", least, parts_.size));
}

void Membership::check_grow(std::chrono::milliseconds patience, int newcomers) const {
  check("grow", patience);
  if (parts_.private_store)
    throw Error(ErrorKind::usage,
                "grow: this job was started with one rank, and has no store that a newcomer could "
                "reach; start it with TUTTI_STORE=file://PATH, or with two ranks");
  if (newcomers < 1 || newcomers > kMaxRanks - parts_.size)
    throw Error(ErrorKind::usage, fmt::format("grow: {} newcomers; there can be 1 to {}", newcomers,
                                              kMaxRanks - parts_.size));
}

void Membership::check_agree(std::chrono::milliseconds patience) const { check("agree", patience); }

void Membership::begin(std::unique_ptr<Regrouping>& what, std::string_view call, TimePoint now,
                       std::chrono::milliseconds patience, const Demands& demands) {
  if (!what)
    what = std::make_unique<Regrouping>(parts_.store, fmt::format("{}/{}", parts_.name, call),
                                        parts_.rank, parts_.size, std::string(call));
  under_way_ = what.get();
  // The others may be using the last new communicator while a program of this rank has lost it, by
  // an error or an interrupt: this rank alone must not become a second group.
  Demands all = demands;
  const auto stays = [&](int rank) {
    return !std::binary_search(demands.without.begin(), demands.without.end(), rank);
  };
  const auto least =
      static_cast<int>(std::count_if(last_members_.begin(), last_members_.end(), stays));
  all.again = least > demands.least;
  all.least = std::max(demands.least, least);
  what->begin(now, patience, all);
}

void Membership::begin_shrink(TimePoint now, std::chrono::milliseconds patience,
                              const Demands& demands) {
  begin(shrinking_, "shrink", now, patience, demands);
}

void Membership::begin_grow(TimePoint now, std::chrono::milliseconds patience, int newcomers) {
  begin(growing_, "grow", now, patience, {parts_.size, newcomers});
}

std::vector<bool> Membership::lost() {
  std::vector<bool> ended = ended_ranks(parts_);
  ended_ = ended;
  unusable_.assign(ended.size(), false);
  for (int peer = 0; peer < parts_.size; ++peer)
    if (peer != parts_.rank)
      unusable_[static_cast<std::size_t>(peer)] = parts_.transport->status(peer).deaf;
  return ended;
}

// Connections that are kept need no start-up. Where that does not succeed, as over a cable that is
// cut although nobody has noticed, the next round makes others. So does a rank that is left out and
// has not ended: at the end of the connections, the others wait until it has what was sent to it.
CommunicatorParts Membership::join(const Regrouped& members,
                                   const std::shared_ptr<WatchedStore>& store, TimePoint deadline) {
  if (parts_.join_regrouped) return parts_.join_regrouped(parts_, members, store, deadline);
  store->check()();
  bool anew = std::exchange(connects_anew_, true);
  for (int rank = 0; rank < parts_.size; ++rank)
    anew = anew || (!members.includes(rank) && !ended_[static_cast<std::size_t>(rank)]);
  if (anew) unusable_.assign(unusable_.size(), true);
  if (auto kept = join_over_kept_connections(parts_, members, unusable_, store, deadline)) {
    connects_anew_ = false;
    return *std::move(kept);
  }
  return join_regrouped(parts_, members, store, deadline);
}

std::optional<CommunicatorParts> Membership::step(TimePoint now, const Regrouping::Lost& lost) {
  const auto join = [this](const Regrouped& members, const std::shared_ptr<WatchedStore>& store,
                           TimePoint deadline) {
    made_.reset();
    parts_.recorder->store_call_waits(-1);
    joining_ = members.members;
    made_ = this->join(members, store, deadline);
  };
  assert(under_way_ != nullptr);
  const auto broken = [this] {
    if (!made_) return false;
    const std::vector<bool> ended = ended_ranks(*made_);
    return std::find(ended.begin(), ended.end(), true) != ended.end();
  };
  try {
    const bool done = under_way_->step(now, lost, join, broken);
    parts_.recorder->store_call_waits(under_way_->awaited());
    if (!done) return std::nullopt;
  } catch (...) {
    made_.reset();
    throw;
  }
  assert(made_ && made_->transport != nullptr && !joining_.empty());
  last_members_ = std::move(joining_);
  return std::exchange(made_, std::nullopt);
}

Agreeing& Membership::agreeing() {
  if (!agreeing_)
    agreeing_ =
        std::make_unique<Agreeing>(parts_.store, parts_.name + "/agree", parts_.rank, parts_.size);
  return *agreeing_;
}

}  // namespace tutti
