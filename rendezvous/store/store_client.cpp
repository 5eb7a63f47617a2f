#include "rendezvous/store/store_client.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cassert>

#include <tutti/error.hpp>

#include "common/text.h"
#include "rendezvous/launch/job_address.h"
#include "rendezvous/store/key_table.h"

namespace tutti::rendezvous {

namespace {

// A reply is a value or the text of an error, which quotes only a little of the request.
constexpr std::size_t kMaxReplyBytes = kMaxValueBytes;

ErrorKind kind_of(Status refusal) {
  switch (refusal) {
    case Status::usage: return ErrorKind::usage;
    case Status::lost: return ErrorKind::peer_lost;
    default: return ErrorKind::mismatch;
  }
}

bool waits_for_key(Verb verb) { return verb == Verb::get || verb == Verb::wait; }

}  // namespace

StoreClient::StoreClient(Joined joined, int rank)
    : rank_(rank),
      server_(std::move(joined.server)),
      server_end_(std::move(joined.server_end)),
      connection_(std::move(joined.connection)) {
  assert(rank_ >= 0 && connection_.fd() >= 0);
}

std::string StoreClient::call(Verb verb, std::string_view key, std::string_view value,
                              Store::Deadline deadline) {
  check_key(key);
  check_value(key, value);
  std::unique_lock lock(mutex_);
  const auto sent = [&] { return connection_.queued_bytes() == 0; };
  if (const Ended how = pump_until(lock, deadline, sent); how != Ended::done)
    refuse(how, verb, key);

  const std::uint64_t id = next_id_++;
  assert(!calls_.contains(id));
  Call& call = calls_[id];
  connection_.queue(bytes_of(Request{id, verb, static_cast<std::uint32_t>(key.size()),
                                     static_cast<std::uint32_t>(value.size()), 0}));
  connection_.queue(key);
  connection_.queue(value);
  lost_ |= !connection_.flush();
  const Ended how = pump_until(lock, deadline, [&] { return call.status.has_value(); });

  assert(how != Ended::done || call.status);
  const Call result = std::move(call);
  calls_.erase(id);
  if (how == Ended::late && waits_for_key(verb)) {
    connection_.queue(bytes_of(Request{id, Verb::forget, 0, 0, 0}));
    lost_ |= !connection_.flush();
  }
  if (how != Ended::done) refuse(how, verb, key);
  if (*result.status != Status::ok)
    throw Error(kind_of(*result.status), fmt::format("{}: {}", describe_rank(rank_), result.bytes));
  return result.bytes;
}

template <typename Done>
StoreClient::Ended StoreClient::pump_until(std::unique_lock<std::mutex>& lock,
                                           Store::Deadline deadline, Done done) {
  assert(lock.owns_lock());
  while (!done()) {
    if (lost_) return Ended::lost;
    if (std::chrono::steady_clock::now() >= deadline) return Ended::late;
    const bool is_pump = !pumping_, unsent = connection_.queued_bytes() != 0;
    if (!is_pump && !unsent) {
      changed_.wait_until(lock, deadline);
      continue;
    }
    pumping_ = true;
    lock.unlock();
    const bool server_ended = poll_all((is_pump ? POLLIN : 0) | (unsent ? POLLOUT : 0), deadline);
    lock.lock();
    const bool flushed = connection_.flush();
    if (is_pump) {
      assert(pumping_ && "another thread took the pump's turn");
      pumping_ = false;
      receive_all();  // replies that the server sent before it ended are still valid
    }
    lost_ |= server_ended || !flushed;
    changed_.notify_all();
  }
  return Ended::done;
}

// Polls the socket and returns whether the server's process has ended. Its socket may stay open in
// children that it forked.
bool StoreClient::poll_all(int events, Store::Deadline deadline) const {
  std::array<pollfd, 2> waited{{{connection_.fd(), static_cast<short>(events), 0},
                                {server_end_.get(), POLLIN, 0}}};  // poll skips a descriptor of -1
  return poll(waited.data(), waited.size(), net::poll_milliseconds(deadline)) > 0 &&
         waited[1].revents != 0;
}

void StoreClient::receive_all() {
  for (std::size_t before = 0;;) {
    before = connection_.received().size();
    if (!connection_.receive()) lost_ = true;
    if (connection_.received().size() == before) return;
    while (take_reply()) {
    }
  }
}

bool StoreClient::take_reply() {
  assert(!pumping_ && "one thread takes replies");
  const std::string_view received = connection_.received();
  const auto reply = fixed_part<Reply>(received);
  if (!reply) return false;
  if (reply->bytes > kMaxReplyBytes) {  // the server violates the protocol
    lost_ = true;
    return false;
  }
  const std::size_t bytes = sizeof *reply + reply->bytes;
  if (received.size() < bytes) return false;
  if (const auto place = calls_.find(reply->id); place != calls_.end())  // else the call timed out
    place->second = {reply->status, std::string(received.substr(sizeof *reply, reply->bytes))};
  connection_.consume(bytes);
  return true;
}

void StoreClient::refuse(Ended how, Verb verb, std::string_view key) const {
  assert(how != Ended::done);
  if (how == Ended::lost)
    throw Error(ErrorKind::peer_lost,
                fmt::format("{}: the store is gone: rank 0 ({}) has ended or closed it; start "
                            "the job again (this call was for {})",
                            describe_rank(rank_), server_, shown(key)));
  if (waits_for_key(verb))
    throw Error(ErrorKind::timeout,
                fmt::format("{}: nobody has set {} in the store of rank 0 ({}) before the "
                            "deadline",
                            describe_rank(rank_), shown(key), server_));
  throw Error(ErrorKind::timeout,
              fmt::format("{}: the store of rank 0 ({}) did not confirm {} before the "
                          "deadline: it may or may not have been changed",
                          describe_rank(rank_), server_, shown(key)));
}

}  // namespace tutti::rendezvous
