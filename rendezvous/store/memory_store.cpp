#include "rendezvous/store/memory_store.h"

#include <fmt/format.h>

#include <cassert>

#include <tutti/error.hpp>

#include "common/patience.h"
#include "common/text.h"

namespace tutti {

// Wakes only the threads that wait for this key, since thousands of ranks may wait for different
// keys.
void MemoryStore::Shared::wake(std::string_view key) {
  const auto place = waiting.find(key);
  if (place != waiting.end()) place->second.changed.notify_all();
  if (unless.contains(key))
    for (auto& [other, all] : waiting) all.changed.notify_all();
}

void MemoryStore::set(std::string_view key, std::string_view value, Deadline) {
  check_key(key);
  check_value(key, value);
  Shared& shared = shared_.get();
  const std::lock_guard lock(shared.mutex);
  shared.table.set(key, value);
  shared.wake(key);
}

std::string MemoryStore::get(std::string_view key, Deadline deadline) {
  return get_unless(key, {}, deadline);
}

std::string MemoryStore::get_unless(std::string_view key, const Unless& unless, Deadline deadline) {
  check_key(key);
  for (const std::string& other : unless.keys) check_key(other);
  const Patience patience{deadline, unless.given_up};
  Shared& shared = shared_.get();
  std::unique_lock lock(shared.mutex);
  const std::string *value = nullptr, *why = nullptr;
  const auto decided = [&] {
    value = shared.table.find(key);
    why = value != nullptr ? nullptr : shared.table.find_any(unless.keys);
    return value != nullptr || why != nullptr;
  };
  if (!decided()) {
    const auto place = shared.waiting.try_emplace(std::string(key)).first;
    ++place->second.threads;
    for (const std::string& other : unless.keys) ++shared.unless[other];
    while (!place->second.changed.wait_until(lock, patience.next_look(), decided) &&
           !patience.over()) {
    }
    assert(place->second.threads > 0);
    if (--place->second.threads == 0) shared.waiting.erase(place);
    for (const std::string& other : unless.keys)
      if (const auto beside = shared.unless.find(other); --beside->second == 0)
        shared.unless.erase(beside);
  }
  if (why != nullptr) throw Error(ErrorKind::peer_lost, *why);
  if (value == nullptr && patience.is_given_up()) refuse_given_up(key);
  if (value == nullptr)
    throw Error(ErrorKind::timeout,
                fmt::format("store: nobody has set {} before the deadline", shown(key)));
  return *value;
}

std::int64_t MemoryStore::add(std::string_view key, std::int64_t amount, Deadline) {
  check_key(key);
  Shared& shared = shared_.get();
  const std::lock_guard lock(shared.mutex);
  const std::int64_t sum = shared.table.sum(key, amount);
  if (amount == 0) return sum;
  shared.table.set(key, fmt::format("{}", sum));
  shared.wake(key);
  return sum;
}

void MemoryStore::wait(std::string_view key, Deadline deadline) {
  static_cast<void>(get(key, deadline));
}

}  // namespace tutti
