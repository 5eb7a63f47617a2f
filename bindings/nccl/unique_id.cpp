#include "bindings/nccl/unique_id.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <tutti/error.hpp>

#include "bindings/nccl/errors.h"
#include "bindings/nccl/store.h"

namespace tutti::nccl {
namespace {

constexpr std::string_view kMark = "tutti";
constexpr std::size_t kLengthAt = kMark.size();
constexpr std::size_t kKnownAt = 6;  // of a byte that is 1 in an id of known_id()
constexpr std::size_t kTicketAt = 8;
static_assert(kTicketAt + kMaxTicketBytes <= sizeof(ncclUniqueId));
static_assert(kMaxTicketBytes <= 127, "the length is one signed byte");

std::string_view ticket_of(const ncclUniqueId& id) {
  const auto length = static_cast<std::size_t>(id.internal[kLengthAt]);
  return {id.internal + kTicketAt, std::min(length, kMaxTicketBytes)};
}

ncclUniqueId id_of(std::string_view ticket) {
  ncclUniqueId id{};
  std::memcpy(id.internal, kMark.data(), kMark.size());
  id.internal[kLengthAt] = static_cast<char>(ticket.size());
  std::memcpy(id.internal + kTicketAt, ticket.data(), ticket.size());
  return id;
}

}  // namespace

ncclUniqueId make_id(const Settings& settings) { return id_of(serve_store(settings.config)); }

ncclUniqueId known_id(std::string_view address, const Settings& settings) {
  const auto deadline = std::chrono::steady_clock::now() + settings.config.startup_timeout;
  ncclUniqueId id = id_of(ticket_at(address, deadline, settings.config));
  id.internal[kKnownAt] = 1;
  return id;
}

bool is_known(const ncclUniqueId& id) { return id.internal[kKnownAt] != 0; }

void serve(const ncclUniqueId& id, const Settings& settings) {
  serve_store_at(ticket_of(id), settings.config);
}

bool is_id(const ncclUniqueId& id) {
  return std::memcmp(id.internal, kMark.data(), kMark.size()) == 0 && id.internal[kLengthAt] > 0;
}

std::string secret_of(const ncclUniqueId& id) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string secret;
  for (const char byte : ticket_of(id)) {
    secret.push_back(kDigits[static_cast<unsigned char>(byte) >> 4]);
    secret.push_back(kDigits[static_cast<unsigned char>(byte) & 15]);
  }
  return secret;
}

std::shared_ptr<Store> open_store(const ncclUniqueId& id, const Settings& settings,
                                  Store::Deadline deadline, const std::atomic<bool>& given_up) {
  return unless_aborted(given_up, [&] {
    return connect_store(ticket_of(id), deadline, settings.config, [&] { return given_up.load(); });
  });
}

}  // namespace tutti::nccl
