#include "rendezvous/store/key_table.h"

#include <fmt/format.h>

#include <cassert>

#include <tutti/error.hpp>

#include "common/interruptible.h"
#include "common/text.h"

namespace tutti {

void check_key(std::string_view key) {
  if (key.size() > kMaxKeyBytes)
    throw Error(ErrorKind::usage, fmt::format("store: the key {} has {} bytes; at most {} fit",
                                              shown(key), key.size(), kMaxKeyBytes));
}

void check_value(std::string_view key, std::string_view value) {
  if (value.size() > kMaxValueBytes)
    throw Error(ErrorKind::usage,
                fmt::format("store: the value for {} has {} bytes; at most {} fit", shown(key),
                            value.size(), kMaxValueBytes));
}

void refuse_given_up(std::string_view key) {
  if (is_interrupted())
    throw Error(ErrorKind::peer_lost,
                fmt::format("store: the wait for {} was interrupted", shown(key)));
  throw Error(ErrorKind::peer_lost, fmt::format("store: the wait for {} was given up", shown(key)));
}

void KeyTable::set(std::string_view key, std::string_view value) {
  assert(key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes);
  const auto place = values_.find(key);
  if (place != values_.end())
    place->second = value;
  else
    values_.emplace(key, value);
}

const std::string* KeyTable::find(std::string_view key) const {
  const auto place = values_.find(key);
  return place == values_.end() ? nullptr : &place->second;
}

const std::string* KeyTable::find_any(const std::vector<std::string>& keys) const {
  for (const std::string& key : keys)
    if (const std::string* value = find(key)) return value;
  return nullptr;
}

void KeyTable::erase(std::string_view prefix) noexcept {
  const auto first = values_.lower_bound(prefix);
  auto last = first;
  while (last != values_.end() && last->first.starts_with(prefix)) ++last;
  values_.erase(first, last);
}

std::int64_t KeyTable::sum(std::string_view key, std::int64_t amount) const {
  const std::string* text = find(key);
  const auto before = parse_number<std::int64_t>(text == nullptr ? "0" : *text);
  if (!before)
    throw Error(ErrorKind::usage,
                fmt::format("store: {} holds {}, which is no number that {} can be added to",
                            shown(key), shown(*text), amount));
  std::int64_t sum = 0;
  if (__builtin_add_overflow(*before, amount, &sum))
    throw Error(ErrorKind::usage, fmt::format("store: {} + {} under {} does not fit 64 bits",
                                              *before, amount, shown(key)));
  return sum;
}

}  // namespace tutti
