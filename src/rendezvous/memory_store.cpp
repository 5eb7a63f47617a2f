#include "rendezvous/memory_store.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/text.h"

namespace tutti {

void MemoryStore::set(std::string_view key, std::string_view value, Deadline) {
  fork_guard_.check("the store");
  check_key(key);
  check_value(key, value);
  const std::lock_guard lock(mutex_);
  table_.set(key, value);
  changed_.notify_all();
}

std::string MemoryStore::get(std::string_view key, Deadline deadline) {
  fork_guard_.check("the store");
  check_key(key);
  std::unique_lock lock(mutex_);
  return await(lock, key, deadline);
}

std::int64_t MemoryStore::add(std::string_view key, std::int64_t amount, Deadline) {
  fork_guard_.check("the store");
  check_key(key);
  const std::lock_guard lock(mutex_);
  const std::int64_t sum = table_.add(key, amount);
  changed_.notify_all();
  return sum;
}

void MemoryStore::wait(std::string_view key, Deadline deadline) {
  fork_guard_.check("the store");
  check_key(key);
  std::unique_lock lock(mutex_);
  await(lock, key, deadline);
}

const std::string& MemoryStore::await(std::unique_lock<std::mutex>& lock, std::string_view key,
                                      Deadline deadline) {
  const std::string* value = nullptr;
  changed_.wait_until(lock, deadline, [&] { return (value = table_.find(key)) != nullptr; });
  if (value == nullptr)
    throw Error(ErrorKind::timeout,
                fmt::format("store: nobody set {} before the deadline", shown(key)));
  return *value;
}

}  // namespace tutti
