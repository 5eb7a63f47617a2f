#include "runtime/membership/membership.h"

#include <cassert>

#include <tutti/error.hpp>

#include "runtime/call.h"
#include "runtime/membership/setup.h"

namespace tutti {

void Membership::check_shrink(std::chrono::milliseconds patience) const {
  if (parts_.name.empty())
    throw Error(ErrorKind::usage,
                "shrink: this communicator was split off another or made in one process; shrink "
                "the one that came from the environment or from a store, and split that");
  if (!is_timeout(patience)) throw Error(ErrorKind::usage, "shrink: " + not_a_timeout(patience));
}

void Membership::begin_shrink(TimePoint now, std::chrono::milliseconds patience) {
  if (!shrinking_)
    shrinking_ = std::make_unique<Shrinking>(parts_.store, parts_.name + "/shrink", parts_.rank,
                                             parts_.size);
  shrinking_->begin(now, patience);
}

std::optional<CommunicatorParts> Membership::step_shrink(TimePoint now,
                                                         const Shrinking::Lost& lost) {
  const auto join = [this](const Survivors& survivors, std::shared_ptr<Store> store,
                           TimePoint deadline) {
    made_.reset();
    made_ = join_survivors(parts_, survivors.members, survivors.name, std::move(store), deadline);
  };
  assert(shrinking_ != nullptr);
  if (!shrinking_->step(now, lost, join)) return std::nullopt;
  assert(made_ && made_->transport != nullptr);
  return std::exchange(made_, std::nullopt);
}

std::vector<bool> Membership::lost() const {
  assert(parts_.rank >= 0 && parts_.rank < parts_.size);
  parts_.transport->progress();
  std::vector<bool> gone(static_cast<std::size_t>(parts_.size));
  for (int peer = 0; peer < parts_.size; ++peer) {
    if (peer == parts_.rank) continue;
    // A rank that failed and then ended still shows `failed` on its status page, hence `gone`.
    const PeerStatus status = parts_.transport->status(peer);
    gone[static_cast<std::size_t>(peer)] = status.gone || status.state == PeerStatus::State::closed;
  }
  return gone;
}

}  // namespace tutti
