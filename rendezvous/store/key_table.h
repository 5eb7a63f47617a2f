// The map of keys to values that a store holds, and the limits that hold for every kind of store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

inline constexpr std::size_t kMaxKeyBytes = 1 << 10;
inline constexpr std::size_t kMaxValueBytes = 1 << 20;
inline constexpr std::size_t kMaxSharedPrefixBytes = 1000;  // see Store::share()

/// Throws `usage` for a key or value that is too large.
void check_key(std::string_view key);
void check_value(std::string_view key, std::string_view value);

/// Throws the error of a wait that Unless::given_up has ended.
[[noreturn]] void refuse_given_up(std::string_view key);

/// A map of keys to values. It may be used by one thread at a time.
class KeyTable {
 public:
  void set(std::string_view key, std::string_view value);

  /// The value of `key`, or null if there is none. The pointer is valid until the next change.
  const std::string* find(std::string_view key) const;

  /// Does the same for the first of `keys` that has a value.
  const std::string* find_any(const std::vector<std::string>& keys) const;

  /// The number that Store::add() leaves under `key`; the table stays as it is. Throws `usage` if
  /// the value is not a decimal number or the sum does not fit into 64 bits.
  std::int64_t sum(std::string_view key, std::int64_t amount) const;

  /// Removes all keys that begin with `prefix`.
  void erase(std::string_view prefix) noexcept;

  const std::map<std::string, std::string, std::less<>>& all() const noexcept { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace tutti
