// The calls that make communicators: by start-up, split, shrink and grow; and agree.
#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/secret.h"
#include "runtime/calling.h"
#include "runtime/communicator_impl.h"
#include "runtime/membership/newcomer.h"
#include "runtime/membership/setup.h"

namespace tutti {
namespace {

// The trace of this rank shows the call until it ends.
class InStoreCall {
 public:
  InStoreCall(Recorder& recorder, StoreCall call) : recorder_(recorder) { recorder_.enter(call); }
  ~InStoreCall() { recorder_.leave(); }
  InStoreCall(const InStoreCall&) = delete;
  InStoreCall& operator=(const InStoreCall&) = delete;

 private:
  Recorder& recorder_;
};

}  // namespace

// Returns which ranks are known to have ended, for another thread than the engine's owner.
Regrouping::Lost CommunicatorImpl::lost() {
  return [this] {
    const auto owned = driver_.own_engine();
    return membership_.lost();
  };
}

Communicator CommunicatorImpl::await_regrouped(const Regrouping::Lost& lost) {
  std::optional<CommunicatorParts> made;
  driver_.await_steps(
      [&](TimePoint at) {
        made = membership_.step(at, lost);
        return made.has_value();
      },
      [this] { return membership_.next_step(); });
  // The others have the new communicator, so that a failure here is final: see Membership::begin().
  try {
    return make(std::move(*made));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {}: no memory for the new communicator, which the others have "
                            "made: end this process",
                            parts_.rank));
  }
}

Communicator CommunicatorImpl::shrink(std::chrono::milliseconds patience, const Demands& demands) {
  const Calling calling(*this, "shrink", Calling::Of::failed);
  const Interruptible to_its_end(nullptr);
  membership_.check_shrink(patience, demands);
  queue_.refuse_in_callback();
  const InStoreCall shown(*parts_.recorder, StoreCall::shrink);
  const TimePoint began = parts_.runtime->clock().now(), until = began + patience;
  // The others may be waiting for their own calls, and come once this one has failed.
  if (!driver_.drain(began + patience / 2)) {
    failure_.abort("it called shrink() with calls under way that did not end");
    driver_.drain();
  }
  const TimePoint now = parts_.runtime->clock().now();
  membership_.begin_shrink(
      now, std::chrono::ceil<std::chrono::milliseconds>(until - std::min(until, now)), demands);
  return await_regrouped(lost());
}

Communicator CommunicatorImpl::grow(int newcomers, std::chrono::milliseconds patience) {
  const Calling calling(*this, "grow");
  const Interruptible to_its_end(nullptr);
  membership_.check_grow(patience, newcomers);
  queue_.refuse_in_callback();
  failure_.throw_if_any();
  const InStoreCall shown(*parts_.recorder, StoreCall::grow);
  membership_.begin_grow(parts_.runtime->clock().now(), patience, newcomers);
  // A communicator that fails meanwhile grows no more: abort() ends this call, too.
  return await_regrouped([this] {
    const auto owned = driver_.own_engine();
    std::vector<bool> ended = membership_.lost();
    failure_.notice_failed_peers();
    failure_.throw_if_any();
    return ended;
  });
}

Agreement CommunicatorImpl::agree(std::uint64_t flags, std::chrono::milliseconds patience) {
  const Calling calling(*this, "agree", Calling::Of::failed);
  const Interruptible to_its_end(nullptr);
  membership_.check_agree(patience);
  queue_.refuse_in_callback();
  const InStoreCall shown(*parts_.recorder, StoreCall::agree);
  Agreeing& agreeing = membership_.agreeing();
  agreeing.begin(parts_.runtime->clock().now(), flags, patience);
  std::optional<Agreement> agreed;
  driver_.await_steps(
      [&](TimePoint at) {
        agreed = agreeing.step(at, lost());
        parts_.recorder->store_call_waits(agreeing.awaited());
        return agreed.has_value();
      },
      [&] { return agreeing.next_step(); });
  return *agreed;
}

std::optional<Communicator> CommunicatorImpl::split(const SplitCard& card) {
  const Calling calling(*this, "split");
  Splitting splitting(parts_, card);
  call_inside(splitting.exchange());
  // From here on, the other members wait for this rank, and an error here is told to them as the
  // error of this communicator, as that of any other call; a mismatch is found by all of them.
  const auto no_memory = [&]() -> const Error& {
    return splitting.give_up(
        failure_.set(Error(ErrorKind::unavailable,
                           fmt::format("rank {}: no memory for a new communicator", parts_.rank))));
  };
  try {
    if (!splitting.compare()) return std::nullopt;
  } catch (const std::bad_alloc&) {
    throw no_memory();
  }
  try {
    const Runtime& runtime = *parts_.runtime;
    splitting.make(runtime.clock().now() + runtime.config().startup_timeout);
    driver_.await_peers([&] { return splitting.joined(); },
                        [&](TimePoint now) {
                          const auto owned = driver_.try_own_engine();
                          splitting.look(now, owned.owns_lock());
                        });
    Communicator part = make(splitting.take_parts(runtime.clock().now()));
    of(part).planner_.own_algorithms().add_all_of(planner_.own_algorithms());
    return part;
  } catch (const Error& error) {
    throw splitting.give_up(failure_.set(error));
  } catch (const std::bad_alloc&) {
    throw no_memory();
  }
}

int Communicator::device() const noexcept {
  const auto& gpu = impl_->parts().gpu;
  return gpu == nullptr ? -1 : gpu->ordinal();
}

Communicator Communicator::from_env(const Config& config) {
  return CommunicatorImpl::make(join_environment(config));
}

Communicator Communicator::create(std::shared_ptr<Store> store, int rank, int size,
                                  const Config& config) {
  return CommunicatorImpl::make(
      join_store(std::move(store), rank, size, config, [&] { return configured_secret(config); }));
}

Communicator Communicator::join(const Config& config) {
  return CommunicatorImpl::make(join_running_job(config));
}
Communicator Communicator::join(const std::shared_ptr<Store>& store, const Config& config) {
  return CommunicatorImpl::make(
      join_as_newcomer(store, config, configured_secret(config),
                       std::chrono::steady_clock::now() + config.startup_timeout));
}

std::vector<Communicator> Communicator::in_process(int size, const Config& config) {
  std::vector<Communicator> ranks;
  for (CommunicatorParts& parts : join_in_process(size, config))
    ranks.push_back(CommunicatorImpl::make(std::move(parts)));
  return ranks;
}

std::optional<Communicator> Communicator::split(int color, int key) {
  return impl_->split(split_card(color, key));
}
Communicator Communicator::dup() { return std::move(*impl_->split(dup_card())); }
std::optional<Communicator> Communicator::subgroup(std::span<const int> ranks) {
  return impl_->split(subgroup_card(ranks, rank(), size()));
}
Communicator Communicator::shrink(std::chrono::milliseconds patience, int least) {
  return impl_->shrink(patience, {least, 0});
}
Communicator Communicator::shrink_without(std::span<const int> ranks,
                                          std::chrono::milliseconds patience) {
  Demands demands{
      std::max(size() - static_cast<int>(ranks.size()), 1), 0, {ranks.begin(), ranks.end()}};
  std::sort(demands.without.begin(), demands.without.end());
  return impl_->shrink(patience, demands);
}
Communicator Communicator::grow(int newcomers, std::chrono::milliseconds patience) {
  return impl_->grow(newcomers, patience);
}
Agreement Communicator::agree(std::uint64_t flags, std::chrono::milliseconds patience) {
  return impl_->agree(flags, patience);
}

}  // namespace tutti
