#include "transport/queue_pair/registrations.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>

#include <tutti/error.hpp>

#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/path.h"

namespace tutti::qp {

std::uint32_t Registrations::Use::local_key() const noexcept { return entry_->local_key; }
std::uint32_t Registrations::Use::remote_key() const noexcept { return entry_->remote_key; }
std::uint32_t Registrations::Use::memory() const noexcept { return entry_->memory; }

std::shared_ptr<void> Registrations::add(std::byte* data, std::size_t bytes, bool readable) {
  assert(data != nullptr && bytes > 0);
  struct Held {
    ~Held() {
      // In a forked child, the registrations are those of the parent.
      if (getpid() != process)
        static_cast<void>(new std::shared_ptr(owner));
      else if (number != 0)
        owner->remove(number);
    }
    const std::shared_ptr<Registrations> owner;
    std::uint32_t number = 0;  // 0 until the memory is owned, so that no lock is taken before
    const pid_t process = getpid();
  };
  auto held = std::shared_ptr<Held>(new Held{shared_from_this()});
  const std::lock_guard lock(mutex_);
  const std::uint32_t number = ++last_number_;
  memory_.emplace(data, Owned{data, bytes, number, readable});
  held->number = number;
  longest_ = std::max(longest_, bytes);
  memory_count_.fetch_add(1, std::memory_order_relaxed);
  return held;
}

// Messages under way are moved away from the memory, or have ended, before its registrations do.
void Registrations::remove(std::uint32_t number) noexcept {
  const std::lock_guard calls(calls_);
  std::vector<Connection*> users;
  Owned memory;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(memory_.begin(), memory_.end(),
                                    [&](const auto& each) { return each.second.number == number; });
    if (found == memory_.end()) return;
    memory = found->second;
    memory_.erase(found);
    memory_count_.fetch_sub(1, std::memory_order_relaxed);
    for (const Entry& entry : entries_)
      if (entry.memory == number && entry.uses > 0) users.push_back(entry.connection);
  }
  for (Connection* const user : users) user->withdraw(number, memory.data, memory.bytes);
  const std::lock_guard lock(mutex_);
  erase_if([&](const Entry& entry) { return entry.memory == number; });
}

void Registrations::forget(const Connection& connection) noexcept {
  const std::lock_guard calls(calls_);
  const std::lock_guard lock(mutex_);
  erase_if([&](const Entry& entry) { return entry.connection == &connection; });
}

// The connection, whose lock is held, stays.
void Registrations::forget(const Connection& connection, std::uint32_t path) noexcept {
  const std::lock_guard lock(mutex_);
  erase_if(
      [&](const Entry& entry) { return entry.connection == &connection && entry.path == path; });
}

// Called with the lock held.
template <typename Which>
void Registrations::erase_if(Which&& which) noexcept {
  for (auto entry = entries_.begin(); entry != entries_.end();)
    if (which(*entry))
      entry = erase(entry);
    else
      ++entry;
}

Registrations::Use Registrations::use(Connection& connection, const Path& path,
                                      const std::byte* data, std::size_t bytes, bool readable) {
  const std::lock_guard lock(mutex_);
  const Owned* const memory = find(data, bytes, readable);
  if (memory == nullptr) return {};
  auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& each) {
    return each.connection == &connection && each.path == path.number &&
           each.memory == memory->number && each.readable == readable && !each.ended;
  });
  if (entry != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, entry);
    if (entry->region == nullptr) return {};
    ++counters_.hits;
    ++entry->uses;
    return {*this, *entry};
  }
  if (!make_room(memory->bytes)) {
    refuse(fmt::format(
        "{} bytes more than the {} that are in use are too many: {} bytes and {} pieces "
        "of memory are kept registered at most",
        memory->bytes, counters_.bytes, limits_.bytes, limits_.count));
    return {};
  }
  entries_.push_front({});
  Entry& made = entries_.front();
  made.connection = &connection;
  made.path = path.number;
  made.memory = memory->number;
  made.readable = readable;
  try {
    made.region = path.pair().add(memory->data, memory->bytes, readable);
  } catch (const std::exception& error) {
    ++counters_.count;
    refuse(error.what());  // The entry stays, so that it is not tried again for each message.
    return {};
  }
  made.bytes = memory->bytes;
  made.local_key = made.region->local_key();
  made.remote_key = made.region->remote_key();
  made.uses = 1;
  ++counters_.made;
  ++counters_.count;
  counters_.bytes += made.bytes;
  return {*this, made};
}

void Registrations::revoke(Use& use) noexcept {
  assert(use);
  const std::lock_guard lock(mutex_);
  erase(at(*use.entry_));
}

void Registrations::end(Entry& entry) noexcept {
  const std::lock_guard lock(mutex_);
  assert(entry.uses > 0);
  if (--entry.uses == 0 && entry.ended) erase(at(entry));
}

Registrations::Entries::iterator Registrations::at(const Entry& entry) noexcept {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& each) { return &each == &entry; });
  assert(found != entries_.end());
  return found;
}

const Registrations::Owned* Registrations::find(const std::byte* data, std::size_t bytes,
                                                bool readable) const {
  for (auto next = memory_.upper_bound(data); next != memory_.begin();) {
    const Owned& memory = (--next)->second;
    const auto offset = static_cast<std::size_t>(data - memory.data);
    if (offset >= longest_) break;
    if (offset <= memory.bytes && bytes <= memory.bytes - offset && memory.readable >= readable)
      return &memory;
  }
  return nullptr;
}

// Ends registrations that no message uses, the one that was used longest ago first.
bool Registrations::make_room(std::size_t bytes) {
  if (bytes > limits_.bytes) return false;
  for (auto entry = entries_.end();
       counters_.count >= limits_.count || counters_.bytes > limits_.bytes - bytes;) {
    if (entry == entries_.begin()) return false;
    --entry;
    if (entry->uses > 0 || entry->ended) continue;
    if (entry->region != nullptr) ++counters_.evicted;
    entry = erase(entry);
  }
  return true;
}

// Ends the registration; the entry stays until the last message that uses it has ended.
Registrations::Entries::iterator Registrations::erase(Entries::iterator entry) noexcept {
  entry->region.reset();
  counters_.bytes -= std::exchange(entry->bytes, 0);
  if (!std::exchange(entry->ended, true)) --counters_.count;
  return entry->uses > 0 ? std::next(entry) : entries_.erase(entry);
}

void Registrations::refuse(const std::string& why) {
  if (counters_.refused++ == 0 && refused_) refused_(why);
}

}  // namespace tutti::qp
