#include "rendezvous/store/protocol.h"

#include <cassert>

#include "rendezvous/store/key_table.h"

namespace tutti::rendezvous {

std::string encode_keys(const std::vector<std::string>& keys) {
  std::string bytes;
  for (const std::string& key : keys) {
    assert(key.size() <= kMaxKeyBytes);
    bytes.append(bytes_of(static_cast<std::uint16_t>(key.size()))).append(key);
  }
  return bytes;
}

std::optional<std::vector<std::string>> decode_keys(std::string_view bytes) {
  std::vector<std::string> keys;
  while (!bytes.empty()) {
    const auto length = fixed_part<std::uint16_t>(bytes);
    if (!length || *length > kMaxKeyBytes || bytes.size() - sizeof *length < *length)
      return std::nullopt;
    keys.emplace_back(bytes.substr(sizeof *length, *length));
    bytes.remove_prefix(sizeof *length + *length);
  }
  return keys;
}

}  // namespace tutti::rendezvous
