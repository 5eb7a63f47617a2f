#include "rendezvous/store/replication.h"

#include <tutti/error.hpp>

#include "rendezvous/store/key_table.h"

namespace tutti::rendezvous {

std::string encode(const Change& change, std::uint64_t number) {
  const ChangeHeader header{number,
                            change.client,
                            change.id,
                            change.settled,
                            change.kind,
                            static_cast<std::uint32_t>(change.key.size()),
                            static_cast<std::uint32_t>(change.value.size()),
                            static_cast<std::uint32_t>(change.reply.size())};
  std::string bytes(bytes_of(header));
  bytes.append(change.key).append(change.value).append(change.reply);
  return bytes;
}

std::optional<ReceivedChange> decode(std::string_view input) {
  const auto header = fixed_part<ChangeHeader>(input);
  if (!header) return std::nullopt;
  if (header->kind < Change::Kind::set || header->kind > Change::Kind::erase ||
      header->key_bytes > kMaxKeyBytes || header->value_bytes > kMaxValueBytes ||
      header->reply_bytes > kMaxValueBytes)
    throw Error(ErrorKind::corrupt, "the store's server sends its standby what is no change");
  const std::size_t bytes =
      sizeof *header + header->key_bytes + header->value_bytes + header->reply_bytes;
  if (input.size() < bytes) return std::nullopt;
  const std::string_view rest = input.substr(sizeof *header);
  ReceivedChange received;
  received.number = header->number;
  received.bytes = bytes;
  received.change = {header->kind,
                     header->client,
                     header->id,
                     header->settled,
                     rest.substr(0, header->key_bytes),
                     rest.substr(header->key_bytes, header->value_bytes),
                     rest.substr(header->key_bytes + header->value_bytes, header->reply_bytes)};
  return received;
}

}  // namespace tutti::rendezvous
