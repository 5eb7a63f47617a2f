// What a store holds: keys with values, and the rules that hold for every kind of store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace tutti {

inline constexpr std::size_t kMaxKeyBytes = 1 << 10;
inline constexpr std::size_t kMaxValueBytes = 1 << 20;

/// Throws `usage` for a key or value that is too large.
void check_key(std::string_view key);
void check_value(std::string_view key, std::string_view value);

/// One thread at a time.
class KeyTable {
 public:
  void set(std::string_view key, std::string_view value);

  /// Null where there is none. Valid until the next change.
  const std::string* find(std::string_view key) const;

  /// Store::add. Throws `usage` where the value is no decimal number or the sum does not fit.
  std::int64_t add(std::string_view key, std::int64_t amount);

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace tutti
