#include "runtime/membership/joining_store.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include <tutti/error.hpp>

#include "common/interruptible.h"

namespace tutti {
namespace {

// The time for telling others of a failure, which the rank that has failed waits for.
constexpr std::chrono::seconds kTelling{1};
constexpr std::size_t kMostReasonBytes = 1024;  // of a value that is set when a rank has left

Store::Deadline soon() { return std::chrono::steady_clock::now() + kTelling; }

// These precede the reason where all ranks get the kind of the rank that has failed.
constexpr std::string_view kInVain = "timeout: ", kMismatch = "mismatch: ";

[[noreturn]] void throw_reason(std::string_view text) {
  for (const auto& [before, kind] :
       {std::pair(kInVain, ErrorKind::timeout), {kMismatch, ErrorKind::mismatch}})
    if (text.starts_with(before)) throw Error(kind, std::string(text.substr(before.size())));
  throw Error(ErrorKind::peer_lost, std::string(text));
}

std::string reason_of(std::string_view kind, int rank, const std::exception& error) {
  return fmt::format("{}rank {} could not join the others: {}", kind, rank, error.what())
      .substr(0, kMostReasonBytes);
}

}  // namespace

JoiningStore::JoiningStore(Store& store, std::string_view name, int rank, int size,
                           Deadline deadline, std::function<void()> also)
    : store_(store),
      lost_(fmt::format("{}/lost", name)),
      losses_(fmt::format("{}/lost/count", name)),
      rank_(rank),
      also_(std::move(also)) {
  store_.set_when_gone(lost_,
                       fmt::format("rank {} of {} has ended before it had joined the others: see "
                                   "what it says, and whether it was killed",
                                   rank, size),
                       deadline);
  store_.set_when_gone(losses_, "1", deadline);
}

// The count is the first to go, since there is no count without a reason. Keys are set in the order
// of their names.
JoiningStore::~JoiningStore() {
  if (stays_) return;
  const Interruptible to_its_end(nullptr);
  for (const std::string* const key : {&losses_, &lost_}) {
    try {
      store_.set_when_gone(*key, {}, soon());
    } catch (const std::exception&) {  // The store is gone, or slow. All who waited have gone on.
    }
  }
}

void JoiningStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  store_.set(key, value, deadline);
}

std::string JoiningStore::get(std::string_view key, Deadline deadline) {
  try {
    return store_.get_unless(key, {{lost_}}, deadline);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::peer_lost) throw_reason(error.what());
    throw;
  }
}

std::int64_t JoiningStore::add(std::string_view key, std::int64_t amount, Deadline deadline) {
  return store_.add(key, amount, deadline);
}

void JoiningStore::wait(std::string_view key, Deadline deadline) {
  static_cast<void>(get(key, deadline));
}

void JoiningStore::check() {
  if (also_) also_();
  std::string reason;
  try {
    if (store_.add(losses_, 0, soon()) > 0) reason = store_.get(lost_, soon());
  } catch (const Error& error) {  // A store that hundreds of ranks ask may take longer.
    if (error.kind() != ErrorKind::timeout) throw;
  }
  if (!reason.empty()) throw_reason(reason);
}

void JoiningStore::fail(const std::exception& error) noexcept {
  const auto* its = dynamic_cast<const Error*>(&error);
  const ErrorKind kind = its == nullptr ? ErrorKind::internal : its->kind();
  if ((kind == ErrorKind::peer_lost && !is_interrupted()) || kind == ErrorKind::corrupt) return;
  if (kind == ErrorKind::mismatch && !connects_) return;
  stays_ = kind == ErrorKind::timeout;
  const Interruptible to_its_end(nullptr);
  try {
    if (stays_) return store_.set_when_gone(lost_, reason_of(kInVain, rank_, error), soon());
    store_.set(lost_, reason_of(kind == ErrorKind::mismatch ? kMismatch : "", rank_, error),
               soon());
    store_.add(losses_, 1, soon());
  } catch (const std::exception&) {  // The store is gone, and all who wait hear of that.
  }
}

std::string next_prefix(Store& store, int rank, Store::Deadline deadline) {
  return fmt::format("tutti/{}", store.add(fmt::format("tutti/made/{}", rank), 1, deadline));
}

void tell_if_it_throws(Store& store, int rank, int size, const std::function<void()>& prepare) {
  try {
    prepare();
  } catch (const std::exception& error) {
    try {
      JoiningStore(store, next_prefix(store, rank, soon()), rank, size, soon(), {}).fail(error);
    } catch (const std::exception&) {  // The store is gone, and all who wait hear of that.
    }
    throw;
  }
}

}  // namespace tutti
