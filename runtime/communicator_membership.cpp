// The calls of a communicator that make another one: shrink and split.
#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "runtime/communicator_impl.h"

namespace tutti {

Communicator CommunicatorImpl::shrink(std::chrono::milliseconds patience) {
  membership_.check_shrink(patience);
  queue_.refuse_in_callback();
  const TimePoint until = parts_.runtime->clock().now() + patience;
  if (!driver_.drain(until)) {
    failure_.abort("it called shrink() with calls under way that did not end");
    driver_.drain();
  }
  const auto lost = [this] {
    const auto owned = driver_.own_engine();
    return membership_.lost();
  };
  const TimePoint now = parts_.runtime->clock().now();
  membership_.begin_shrink(
      now, std::chrono::ceil<std::chrono::milliseconds>(until - std::min(until, now)));
  std::optional<CommunicatorParts> made;
  driver_.await_steps(
      [&](TimePoint at) {
        made = membership_.step_shrink(at, lost);
        return made.has_value();
      },
      [this] { return membership_.next_step(); });
  return make(std::move(*made));
}

std::optional<Communicator> CommunicatorImpl::split(const SplitCard& card) {
  Splitting splitting(parts_, card);
  call(splitting.exchange());
  if (!splitting.compare()) return std::nullopt;
  // From here on, the other members wait for this rank, and an error here is told to them as the
  // error of this communicator, as that of any other call.
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
    throw failure_.set(error);
  } catch (const std::bad_alloc&) {
    throw failure_.set(
        Error(ErrorKind::unavailable,
              fmt::format("rank {}: no memory for a new communicator", parts_.rank)));
  }
}

}  // namespace tutti
