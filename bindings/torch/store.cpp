#include "store.h"

#include <algorithm>

#include <tutti/error.hpp>

namespace tutti::pytorch {
namespace {

// Translates torch's errors into tutti's kinds: `timeout` if the wait timed out, else `peer_lost`,
// which means that the store's host is gone.
template <typename Body>
auto translated(std::string_view what, std::string_view key, Body&& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    const bool late = text.find("imeout") != text.npos || text.find("imed out") != text.npos;
    throw Error(
        late ? ErrorKind::timeout : ErrorKind::peer_lost,
        "torch's store, " + std::string(what) + " \"" + std::string(key) + "\": " + error.what());
  }
}

std::chrono::milliseconds left(Store::Deadline deadline) {
  const auto rest =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(rest, std::chrono::milliseconds{1});  // torch takes 0 for no limit
}

}  // namespace

void Store::set(std::string_view key, std::string_view value, Deadline) {
  translated("set", key, [&] {
    store_->set(std::string(key), std::vector<std::uint8_t>(value.begin(), value.end()));
  });
}

std::string Store::get(std::string_view key, Deadline deadline) {
  wait(key, deadline);  // get() alone waits for the store's own timeout
  return translated("get", key, [&] {
    const std::vector<std::uint8_t> value = store_->get(std::string(key));
    return std::string(value.begin(), value.end());
  });
}

std::int64_t Store::add(std::string_view key, std::int64_t amount, Deadline) {
  return translated("add", key, [&] { return store_->add(std::string(key), amount); });
}

void Store::wait(std::string_view key, Deadline deadline) {
  translated("wait", key, [&] { store_->wait({std::string(key)}, left(deadline)); });
}

}  // namespace tutti::pytorch
