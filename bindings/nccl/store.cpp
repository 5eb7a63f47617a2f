#include "bindings/nccl/store.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace tutti::nccl {
namespace {

// The time in which the store answers what needs no waiting.
constexpr std::chrono::seconds kAnswer{5};
// The time for telling others of a failure, which the rank that has failed waits for.
constexpr std::chrono::seconds kTelling{1};
Store::Deadline until_answer(Store::Deadline deadline) {
  return std::min(deadline, std::chrono::steady_clock::now() + kAnswer);
}

constexpr std::string_view kFailure = "failure";    // why a rank does not come
constexpr std::string_view kFailures = "failures";  // a number, which can be read without waiting

// FNV-1a, so that names of communicators that are made of each other do not become longer.
std::string digest(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return std::to_string(hash);
}

std::string joined(const std::string& prefix, std::string_view key) {
  std::string whole = prefix;
  return whole.append("/").append(key);
}

}  // namespace

void Part::set(std::string_view key, std::string_view value, Deadline deadline) {
  whole_->set(joined(prefix_, key), value, until_answer(deadline));
}

std::string Part::get(std::string_view key, Deadline deadline) {
  return get_unless(key, {}, deadline);
}

std::string Part::get_unless(std::string_view key, const Unless& unless, Deadline deadline) {
  Unless its{{joined(prefix_, kFailure)},
             [&] { return *given_up_ || (unless.given_up && unless.given_up()); }};
  for (const std::string& other : unless.keys) its.keys.push_back(joined(prefix_, other));
  return unless_aborted(*given_up_,
                        [&] { return whole_->get_unless(joined(prefix_, key), its, deadline); });
}

void Part::set_when_gone(std::string_view key, std::string_view value, Deadline deadline) {
  whole_->set_when_gone(joined(prefix_, key), value, until_answer(deadline));
}

// Ranks that wait for each other's connections read a number now and then.
std::int64_t Part::add(std::string_view key, std::int64_t amount, Deadline deadline) {
  if (amount == 0) throw_if_failed(deadline);
  return whole_->add(joined(prefix_, key), amount, until_answer(deadline));
}

void Part::throw_if_failed(Deadline deadline) {
  if (*given_up_) throw Error(ErrorKind::peer_lost, "the communicator was aborted");
  const Deadline until = until_answer(deadline);
  if (whole_->add(joined(prefix_, kFailures), 0, until) > 0)
    throw Error(ErrorKind::peer_lost, whole_->get(joined(prefix_, kFailure), until));
}

void Part::wait(std::string_view key, Deadline deadline) { get(key, deadline); }

void Part::fail_when_gone(const std::string& why, Deadline deadline) {
  set_when_gone(kFailure, why, deadline);
}

void Part::has_joined() noexcept {
  try {
    set_when_gone(kFailure, {}, std::chrono::steady_clock::now() + kTelling);
  } catch (const std::exception&) {
    // Ranks of a communicator that has been made do not look at it.
  }
}

void Part::fail(const std::string& why) noexcept {
  try {
    const Deadline until = std::chrono::steady_clock::now() + kTelling;
    whole_->set(joined(prefix_, kFailure), why, until);
    whole_->add(joined(prefix_, kFailures), 1, until);
  } catch (const std::exception&) {
    // The store is lost, and the others get the error of that.
  }
}

std::shared_ptr<Part> Part::part(const std::string& name, GivenUp given_up) const {
  return std::make_shared<Part>(whole_, digest(joined(prefix_, name)), std::move(given_up));
}

}  // namespace tutti::nccl
