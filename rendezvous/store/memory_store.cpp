#include "rendezvous/store/memory_store.h"

#include <fmt/format.h>

#include <cassert>

#include <tutti/error.hpp>

#include "common/text.h"

namespace tutti {

// Wakes only the threads that wait for this key, since thousands of ranks may wait for different
// keys.
void MemoryStore::Shared::wake(std::string_view key) {
  const auto place = waiting.find(key);
  if (place != waiting.end()) place->second.changed.notify_all();
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
  check_key(key);
  Shared& shared = shared_.get();
  std::unique_lock lock(shared.mutex);
  const std::string* value = nullptr;
  const auto there = [&] { return (value = shared.table.find(key)) != nullptr; };
  if (!there()) {
    const auto place = shared.waiting.try_emplace(std::string(key)).first;
    ++place->second.threads;
    place->second.changed.wait_until(lock, deadline, there);
    assert(place->second.threads > 0);
    if (--place->second.threads == 0) shared.waiting.erase(place);
  }
  if (value == nullptr)
    throw Error(ErrorKind::timeout,
                fmt::format("store: nobody has set {} before the deadline", shown(key)));
  return *value;
}

std::int64_t MemoryStore::add(std::string_view key, std::int64_t amount, Deadline) {
  check_key(key);
  Shared& shared = shared_.get();
  const std::lock_guard lock(shared.mutex);
  const std::int64_t sum = shared.table.add(key, amount);
  shared.wake(key);
  return sum;
}

void MemoryStore::wait(std::string_view key, Deadline deadline) {
  static_cast<void>(get(key, deadline));
}

}  // namespace tutti
