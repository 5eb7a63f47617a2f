#include "rendezvous/store/store_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <new>

#include <tutti/error.hpp>

#include "common/text.h"

namespace tutti::rendezvous {
bool StoreService::is_sane(const Request& request) noexcept {
  std::size_t most = 0;  // bytes of a value
  if (request.verb == Verb::set || request.verb == Verb::add) most = kMaxValueBytes;
  if (request.verb == Verb::get) most = kMaxEncodedKeysBytes;
  if (request.verb == Verb::set_when_gone || request.verb == Verb::share) most = kMaxKeyBytes;
  return request.verb >= Verb::set && request.verb <= Verb::share && request.zero == 0 &&
         request.key_bytes <= kMaxKeyBytes && request.value_bytes <= most;
}

bool StoreService::take(int client, std::string_view& input, const Room& room) {
  while (room()) {
    const auto request = fixed_part<Request>(input);
    if (!request) return true;
    if (!is_sane(*request)) return false;
    const std::size_t bytes = sizeof *request + request->key_bytes + request->value_bytes;
    if (input.size() < bytes) return true;
    handle(client, *request, input.substr(sizeof *request, request->key_bytes),
           input.substr(sizeof *request + request->key_bytes, request->value_bytes));
    input.remove_prefix(bytes);
  }
  return true;
}

void StoreService::handle(int client, const Request& request, std::string_view key,
                          std::string_view value) {
  assert(is_sane(request) && key.size() == request.key_bytes);
  returned_.erase(client);
  try {
    switch (request.verb) {
      case Verb::set:
      case Verb::add: return change(client, request, key, value);
      case Verb::get:
      case Verb::wait: return await(client, request, key, value);
      case Verb::forget:
        return drop([&](const Waiting& w) { return w.client == client && w.id == request.id; });
      case Verb::set_when_gone: return set_when_gone(client, request, key, value);
      case Verb::share: return share(client, key, value);
      case Verb::be_rank: idle_.erase(client); return reply(client, request.id, {});
    }
  } catch (const Error& error) {
    refuse(client, request.id, Status::usage, error.what());
  } catch (const std::bad_alloc&) {
    if (request.verb == Verb::share) return;  // Its keys stay.
    refuse(client, request.id, Status::no_memory, kNoMemory);
  }
}

void StoreService::change(int client, const Request& request, std::string_view key,
                          std::string_view value) {
  const auto who = identities_.find(client);
  Change made{Change::Kind::set, who == identities_.end() ? 0 : who->second, request.id,
              request.settled};
  if (const auto known = answers_.find(made.client); known != answers_.end())
    if (const auto answer = known->second.find(request.id); answer != known->second.end())
      return reply(client, request.id, answer->second);
  std::string sum;
  if (request.verb == Verb::set) {
    participants_.insert(client);
  } else {
    const auto amount = parse_number<std::int64_t>(value);
    if (!amount) throw Error(ErrorKind::usage, "store: the amount to add is no number");
    sum = fmt::format("{}", table_.sum(key, *amount));
    if (*amount == 0) return reply(client, request.id, sum);  // a read: nothing has changed
    value = sum;
  }
  made.key = key;
  made.value = value;
  made.reply = sum;
  keep(made);  // first, since a change is not to be made without memory for its answer
  table_.set(key, value);
  if (changed_) changed_(made);
  reply(client, request.id, sum);
  answer_waiting(key);
}

// Keeps the answer until the client says that it needs it no more.
void StoreService::keep(const Change& change) {
  if (change.client == 0) return;
  auto& answers = answers_[change.client];
  answers.erase(answers.begin(), answers.lower_bound(change.settled));
  answers.insert_or_assign(change.id, std::string(change.reply));
  if (answers.size() > kMaxAnswersOfAClient) answers.erase(answers.begin());
}

void StoreService::enter(int client, std::uint64_t identity, std::uint32_t flags) {
  if (identity != 0) identities_[client] = identity;
  if ((flags & kReturns) != 0) participants_.insert(client), returned_.insert(client);
  if ((flags & kIdle) != 0) idle_.insert(client);
}

void StoreService::set(std::string_view key, std::string_view value) {
  table_.set(key, value);
  Change made;
  made.key = key;
  made.value = value;
  if (changed_) changed_(made);
  answer_waiting(key);
}

void StoreService::apply(const Change& change) {
  if (change.kind == Change::Kind::leave) return part_with(change.client);
  if (change.kind == Change::Kind::erase) return table_.erase(change.key);
  if (change.kind == Change::Kind::set) table_.set(change.key, change.value);
  keep(change);
}

void StoreService::part_with(std::uint64_t identity) {
  constexpr std::size_t kMostKnown = 1000;
  parted_.push_back(identity);
  if (parted_.size() > kMostKnown) parted_.pop_front();
  answers_.erase(identity);
}

bool StoreService::has_parted_with(std::uint64_t identity) const {
  return std::find(parted_.begin(), parted_.end(), identity) != parted_.end();
}

void StoreService::copy(const Changed& use) const {
  for (const auto& [key, value] : table_.all()) {
    Change change;
    change.key = key;
    change.value = value;
    use(change);
  }
  for (const auto& [client, answers] : answers_)
    for (const auto& [id, answer] : answers) {
      Change change{Change::Kind::answer, client, id};
      change.reply = answer;
      use(change);
    }
}

void StoreService::set_when_gone(int client, const Request& request, std::string_view key,
                                 std::string_view value) {
  auto& all = when_gone_[client];
  if (!value.empty() && all.size() == kMaxLeftByAClient && !all.contains(key))
    throw Error(ErrorKind::usage,
                fmt::format("store: one rank has {} keys set when it leaves, and no more are "
                            "allowed",
                            all.size()));
  if (value.empty())
    all.erase(std::string(key));
  else
    all.insert_or_assign(std::string(key), std::string(value));
  reply(client, request.id, {});
}

// Drops a request that it cannot take, since nobody waits for an answer.
void StoreService::share(int client, std::string_view prefix, std::string_view sharers) {
  const auto count = parse_number<std::int64_t>(sharers);
  auto& all = shared_[client];
  if (count && *count > 0 && !prefix.empty() && prefix.size() <= kMaxSharedPrefixBytes &&
      (all.size() < kMaxLeftByAClient || all.contains(std::string(prefix))))
    all.insert_or_assign(std::string(prefix), *count);
}

void StoreService::count_as_left(const std::string& prefix, std::int64_t sharers) {
  // With the length in front, no counter begins with another one.
  const std::string counter = fmt::format("{}{}/{}", kLeftKey, prefix.size(), prefix);
  const std::string* text = table_.find(counter);
  const auto before = parse_number<std::int64_t>(text == nullptr ? "0" : *text).value_or(0);
  if (before < sharers - 1) return set(counter, fmt::format("{}", before + 1));
  erase(prefix);
  erase(counter);
}

void StoreService::erase(std::string_view prefix) noexcept {
  table_.erase(prefix);
  Change made{Change::Kind::erase};
  made.key = prefix;
  if (changed_) changed_(made);
}

void StoreService::await(int client, const Request& request, std::string_view key,
                         std::string_view encoded_unless) {
  auto unless = decode_keys(encoded_unless);
  if (!unless) throw Error(ErrorKind::usage, "store: the keys that end a wait cannot be read");
  participants_.insert(client);
  if (const std::string* value = table_.find(key))
    return reply(client, request.id, request.verb == Verb::get ? *value : std::string_view());
  const std::string* why = table_.find_any(*unless);
  if (why != nullptr) return refuse(client, request.id, Status::unless, *why);
  if (!why_no_waits_.empty()) return refuse(client, request.id, no_waits_, why_no_waits_);
  std::size_t& waits = waits_of_[client];
  if (waits == kMaxWaitsOfAClient)
    throw Error(ErrorKind::usage,
                fmt::format("store: one rank waits for {} keys at once, and no more are allowed; "
                            "wait for {} later",
                            waits, shown(key)));
  assert(waits < kMaxWaitsOfAClient && (request.verb == Verb::get || request.verb == Verb::wait));
  for (const std::string& key_beside : *unless) waits_unless_.try_emplace(key_beside);
  const auto place =
      waiting_.emplace(key, Waiting{client, request.id, request.verb, *std::move(unless)});
  ++waits;
  for (const std::string& key_beside : place->second.unless) ++waits_unless_[key_beside];
}

void StoreService::answer_waiting(std::string_view key) {
  const std::string* value = table_.find(key);
  assert(value != nullptr);
  const auto [first, last] = waiting_.equal_range(key);
  for (auto at = first; at != last; ++at) {
    const Waiting& waiting = at->second;
    count_out(waiting);
    reply(waiting.client, waiting.id, waiting.verb == Verb::get ? *value : std::string_view());
  }
  waiting_.erase(first, last);
  if (waits_unless_.contains(key)) end_waits_unless(key, *value);
}

void StoreService::end_waits_unless(std::string_view key, std::string_view text) {
  drop([&](const Waiting& waiting) {
    if (std::find(waiting.unless.begin(), waiting.unless.end(), key) == waiting.unless.end())
      return false;
    refuse(waiting.client, waiting.id, Status::unless, text);
    return true;
  });
}

// `waiting` is about to be erased.
void StoreService::count_out(const Waiting& waiting) {
  std::size_t& waits = waits_of_[waiting.client];
  assert(waits > 0);
  --waits;
  for (const std::string& key : waiting.unless) {
    const auto place = waits_unless_.find(key);
    assert(place != waits_unless_.end() && place->second > 0);
    if (--place->second == 0) waits_unless_.erase(place);
  }
}

void StoreService::refuse_waits(Status how, std::string_view why) {
  assert(how != Status::ok && !why.empty());
  if (why_no_waits_.empty()) {  // later causes follow from the first
    no_waits_ = how;
    why_no_waits_ = why;
  }
  for (const auto& [key, waiting] : waiting_)
    refuse(waiting.client, waiting.id, no_waits_, why_no_waits_);
  drop([](const Waiting&) { return true; });
  assert(waiting_.empty());
}

void StoreService::refuse(int client, std::uint64_t id, Status how, std::string_view text) {
  assert(how != Status::ok);
  send_(client, {id, how, static_cast<std::uint32_t>(text.size())}, text);
}

void StoreService::reply(int client, std::uint64_t id, std::string_view bytes) {
  assert(bytes.size() <= kMaxValueBytes);
  send_(client, {id, Status::ok, static_cast<std::uint32_t>(bytes.size())}, bytes);
}

template <typename Unwanted>
void StoreService::drop(Unwanted unwanted) {
  std::erase_if(waiting_, [&](const auto& entry) {
    const bool found = unwanted(entry.second);
    if (found) count_out(entry.second);
    return found;
  });
}

void StoreService::leave(int client) {
  drop([client](const Waiting& w) { return w.client == client; });
  assert(!waits_of_.contains(client) || waits_of_[client] == 0);
  waits_of_.erase(client);
  if (const auto all = when_gone_.find(client); all != when_gone_.end()) {
    for (const auto& [key, value] : all->second)
      if (table_.find(key) == nullptr) set(key, value);
    when_gone_.erase(all);
  }
  auto& shared = shared_[client];
  for (; !shared.empty(); shared.erase(shared.begin()))
    count_as_left(shared.begin()->first, shared.begin()->second);
  shared_.erase(client);
  participants_.erase(client);
  idle_.erase(client);
  const auto who = identities_.find(client);
  if (who != identities_.end() && !returned_.contains(client)) {
    part_with(who->second);
    if (changed_) changed_({Change::Kind::leave, who->second});
  }
  identities_.erase(client);
  returned_.erase(client);
}

}  // namespace tutti::rendezvous
