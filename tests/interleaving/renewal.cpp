#include "tests/interleaving/renewal.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/membership/newcomer.h"
#include "runtime/membership/round.h"

namespace tutti::interleaving {

void RunStore::set(std::string_view key, std::string_view value, Deadline) {
  const std::lock_guard lock(mutex_);
  values_.insert_or_assign(std::string(key), std::string(value));
  changed_.notify_all();
}

std::string RunStore::get(std::string_view key, Deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, TimePoint::max(), [&] { return values_.contains(key); });
  return values_.find(key)->second;
}

std::int64_t RunStore::add(std::string_view key, std::int64_t amount, Deadline) {
  const std::lock_guard lock(mutex_);
  const auto value = values_.find(key);
  const std::int64_t sum = (value == values_.end() ? 0 : std::stoll(value->second)) + amount;
  if (amount == 0) return sum;
  values_.insert_or_assign(std::string(key), std::to_string(sum));
  changed_.notify_all();
  return sum;
}

void RunStore::wait(std::string_view key, Deadline deadline) {
  static_cast<void>(get(key, deadline));
}

std::vector<Member> Job::start(int ranks) {
  const Scheduler::Calm calm(scheduler_);
  std::vector<CommunicatorParts> all = make_parts(scheduler_, ranks, World::local);
  std::vector<Member> members;
  for (CommunicatorParts& parts : all) {
    make_renewable(parts, "first");
    members.emplace_back(CommunicatorImpl::make(std::move(parts)));
  }
  return members;
}

void Job::make_renewable(CommunicatorParts& parts, const std::string& name) {
  parts.store = store_;
  parts.name = name;
  parts.join_regrouped = [this](const CommunicatorParts& whole, const Regrouped& all,
                                const std::shared_ptr<WatchedStore>& store, TimePoint) {
    const auto own = std::find(all.members.begin(), all.members.end(), whole.rank);
    return join(all.name, static_cast<int>(own - all.members.begin()), static_cast<int>(all.size()),
                store->check());
  };
}

std::shared_ptr<local::Hub> Job::hub(const std::string& name, int size) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<local::Hub>& hub = hubs_[name];
  if (hub == nullptr) hub = std::make_shared<local::Hub>(size);
  return hub;
}

// Where not all come, `check` throws.
CommunicatorParts Job::join(const std::string& name, int rank, int size,
                            const std::function<void()>& check) {
  const auto all = hub(name, size);
  CommunicatorParts parts = make_part(scheduler_, rank, size, all);
  while (!all->missing().empty()) {
    check();
    sync::sleep_for(std::chrono::milliseconds(1));
  }
  parts.transport->connect({}, TimePoint::max());
  make_renewable(parts, name);
  return parts;
}

Communicator Job::come() {
  for (;;)
    if (auto parts = join_round()) return CommunicatorImpl::make(std::move(*parts));
}

// Returns none where the round does not count.
std::optional<CommunicatorParts> Job::join_round() {
  Coming coming(store_);
  const CalledTo place = coming.await_call(TimePoint::max());
  Round round(*store_, place.round, place.ranks, TimePoint::max());
  std::optional<CommunicatorParts> parts;
  const auto verdict = [&] {
    return newcomers_verdict(round, place.size, parts.has_value(), scheduler_.read_clock(),
                             [] { return false; });
  };
  try {
    parts = join(place.name, place.rank, place.size, [&] {
      if (round.verdict(scheduler_.read_clock()))
        throw Error(ErrorKind::peer_lost, "the round is over");
    });
    round.join(scheduler_.read_clock());
  } catch (const Error&) {
    // The others have given up.
  }
  for (;; sync::sleep_for(std::chrono::milliseconds(1)))
    if (const auto made = verdict()) return *made ? std::move(parts) : std::nullopt;
}

}  // namespace tutti::interleaving
