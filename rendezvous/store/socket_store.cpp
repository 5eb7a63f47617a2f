#include "rendezvous/store/socket_store.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/text.h"
#include "rendezvous/store/key_table.h"

namespace tutti {

using rendezvous::Verb;

SocketStore::SocketStore(rendezvous::Joined joined, int rank, std::unique_ptr<StoreServer> server,
                         std::shared_ptr<const pmix::Client> launcher,
                         std::optional<rendezvous::Way> way, bool idle)
    : launcher_(std::move(launcher)),
      server_(std::move(server)),
      client_("the store", std::move(joined), rank, std::move(way), idle) {}

void SocketStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  client_.get().call(Verb::set, key, value, deadline);
}

std::string SocketStore::get(std::string_view key, Deadline deadline) {
  return get_unless(key, {}, deadline);
}

std::string SocketStore::get_unless(std::string_view key, const Unless& unless, Deadline deadline) {
  for (const std::string& other : unless.keys) check_key(other);
  const std::string keys = rendezvous::encode_keys(unless.keys);
  if (keys.size() > rendezvous::kMaxEncodedKeysBytes)
    throw Error(ErrorKind::usage, fmt::format("store: {} keys that end a wait for {} are too many",
                                              unless.keys.size(), shown(key)));
  return client_.get().call(Verb::get, key, keys, {deadline, unless.given_up});
}

void SocketStore::set_when_gone(std::string_view key, std::string_view value, Deadline deadline) {
  client_.get().set_when_gone(key, value, deadline);
}

std::int64_t SocketStore::add(std::string_view key, std::int64_t amount, Deadline deadline) {
  const std::string sum = client_.get().call(Verb::add, key, fmt::format("{}", amount), deadline);
  const auto number = parse_number<std::int64_t>(sum);
  if (!number)
    throw Error(ErrorKind::internal,
                fmt::format("the store replied {} to an addition to {}", shown(sum), shown(key)));
  return *number;
}

void SocketStore::wait(std::string_view key, Deadline deadline) {
  client_.get().call(Verb::wait, key, {}, deadline);
}

}  // namespace tutti
