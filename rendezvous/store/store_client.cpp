#include "rendezvous/store/store_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <thread>

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
    case Status::no_memory: return ErrorKind::unavailable;
    default: return ErrorKind::mismatch;
  }
}

// A client that has lost the server looks this long for the one that stood by, and waits this long
// for it to notice that it is to serve: a machine that is lost is noticed within half a minute. The
// time begins anew after one in which no call has looked for it.
constexpr std::chrono::seconds kReachLimit{5}, kTakeOverLimit{40};
constexpr std::chrono::milliseconds kPauseBetween{10};

bool waits_for_key(Verb verb) { return verb == Verb::get || verb == Verb::wait; }

std::string request_of(std::uint64_t id, Verb verb, std::string_view key, std::string_view value,
                       std::uint64_t settled) {
  std::string request(bytes_of(Request{id, verb, static_cast<std::uint32_t>(key.size()),
                                       static_cast<std::uint32_t>(value.size()), 0, settled}));
  return request.append(key).append(value);
}

}  // namespace

StoreClient::StoreClient(Joined joined, int rank, std::optional<Way> way, bool idle)
    : rank_(rank),
      way_(std::move(way)),
      server_(std::move(joined.server)),
      server_end_(std::move(joined.server_end)),
      connection_(std::move(joined.connection)),
      idle_(idle) {
  assert(rank_ >= 0 && connection_.fd() >= 0);
  take_replies();
}

std::string StoreClient::call(Verb verb, std::string_view key, std::string_view value,
                              const Patience& patience) {
  check_key(key);
  check_value(key, value);
  std::unique_lock lock(mutex_);
  const auto sent = [&] { return connection_.queued_bytes() == 0; };
  if (const Ended how = pump_until(lock, patience, sent); how != Ended::done)
    refuse(how, verb, key);

  const std::uint64_t id = next_id_++;
  assert(!calls_.contains(id));
  Call& call = calls_[id];
  call.request = request_of(id, verb, key, value, calls_.begin()->first);
  connection_.queue(call.request);
  lost_ |= !connection_.flush();
  const Ended how = pump_until(lock, patience, [&] { return call.status.has_value(); });

  assert(how != Ended::done || call.status);
  const Call result = std::move(call);
  calls_.erase(id);
  if ((how == Ended::late || how == Ended::given_up) && waits_for_key(verb)) {
    connection_.queue(bytes_of(Request{id, Verb::forget, 0, 0, 0, 0}));
    lost_ |= !connection_.flush();
  }
  if (how != Ended::done) refuse(how, verb, key);
  if (*result.status == Status::unless) throw Error(ErrorKind::peer_lost, result.bytes);
  if (*result.status != Status::ok)
    throw Error(kind_of(*result.status), fmt::format("{}: {}", describe_rank(rank_), result.bytes));
  return result.bytes;
}

void StoreClient::set_when_gone(std::string_view key, std::string_view value,
                                Store::Deadline deadline) {
  check_key(key);
  if (value.size() > kMaxKeyBytes)
    throw Error(ErrorKind::usage,
                fmt::format("store: the value for {} when a rank is gone has {} bytes; at most {} "
                            "fit",
                            shown(key), value.size(), kMaxKeyBytes));
  const auto note = [&](std::string_view its) {
    const std::lock_guard lock(mutex_);
    if (its.empty())
      when_gone_.erase(std::string(key));
    else
      when_gone_[std::string(key)] = its;
  };
  note(value);
  try {
    call(Verb::set_when_gone, key, value, deadline);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::usage) note({});  // The next server would refuse it, too.
    throw;
  }
}

void StoreClient::share(std::string_view prefix, int sharers) {
  if (prefix.empty() || prefix.size() > kMaxSharedPrefixBytes)
    throw Error(ErrorKind::usage, fmt::format("store: the shared prefix {} has {} bytes; 1 to {} "
                                              "fit",
                                              shown(prefix), prefix.size(), kMaxSharedPrefixBytes));
  const std::lock_guard lock(mutex_);
  const std::string& count = shared_[std::string(prefix)] = fmt::format("{}", sharers);
  if (lost_) return;  // go_over() sends it.
  connection_.queue(request_of(next_id_++, Verb::share, prefix, count, 0));
  lost_ |= !connection_.flush();
}

void StoreClient::be_rank(Store::Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    idle_ = false;
  }
  call(Verb::be_rank, {}, {}, deadline);
  // The server may have appointed this rank to stand by then. That is read with the answer to the
  // next request, which a rank need not make for as long as nothing fails.
  call(Verb::be_rank, {}, {}, deadline);
}

template <typename Done>
StoreClient::Ended StoreClient::pump_until(std::unique_lock<std::mutex>& lock,
                                           const Patience& patience, Done done) {
  assert(lock.owns_lock());
  while (!done()) {
    if (lost_) {
      if (!go_over(lock, patience)) return Ended::lost;
      // The new connection may have, or be, what is waited for.
      if (!lost_ || !patience.over()) continue;
    }
    if (patience.over()) return patience.is_given_up() ? Ended::given_up : Ended::late;
    const bool is_pump = !pumping_, unsent = connection_.queued_bytes() != 0;
    if (!is_pump && !unsent) {
      changed_.wait_until(lock, patience.next_look());
      continue;
    }
    pumping_ = true;
    ++polling_;
    lock.unlock();
    const int events = (is_pump ? POLLIN : 0) | (unsent ? POLLOUT : 0);
    const bool server_ended = poll_all(events, patience.next_look());
    lock.lock();
    --polling_;
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
    take_replies();
  }
}

// A notice may have arrived together with the answer to the greeting.
void StoreClient::take_replies() {
  while (take_reply()) {
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
  std::string rest(received.substr(sizeof *reply, reply->bytes));
  connection_.consume(bytes);
  if (reply->id == 0) {
    take_notice(reply->status, std::move(rest));
  } else if (const auto place = calls_.find(reply->id); place != calls_.end()) {
    place->second.status = reply->status;
    place->second.bytes = std::move(rest);
  }  // else the call timed out
  return true;
}

void StoreClient::take_notice(Status what, std::string address) {
  if (what == Status::successor) {
    successor_ = std::move(address);
    return;
  }
  // A server that is lost appoints nobody: this rank would look for it while the next one appoints.
  if (what != Status::appointed || lost_ || !way_ || (standby_ && !standby_->over())) return;
  try {
    standby_ = std::make_unique<Standby>(*way_, std::move(address));
  } catch (const Error&) {  // No thread is to be had. The server appoints another rank.
  }
}

// Connects to the server that stood by for the one that is lost. Returns false if there is none.
// When it returns true, the caller looks again at what it waits for, at its patience and at lost_.
bool StoreClient::go_over(std::unique_lock<std::mutex>& lock, const Patience& patience) {
  assert(lost_ && lock.owns_lock());
  if (gone_) return false;
  if (going_) {
    changed_.wait_until(lock, patience.next_look());
    return true;
  }
  going_ = true;
  // The other threads that poll this socket leave it, before it is closed.
  shutdown(connection_.fd(), SHUT_RDWR);
  changed_.wait(lock, [this] { return polling_ == 0; });
  receive_all();  // The server may have named its successor shortly before it ended.
  const auto now = std::chrono::steady_clock::now();
  if (!hopeless_at_ || now > looked_at_ + kReachLimit) hopeless_at_ = now + kReachLimit;
  const std::string address = successor_;
  std::optional<Joined> joined;
  const std::uint32_t flags = kMayStandBy | kReturns | (idle_ ? kIdle : 0u);
  std::optional<std::string> hopeless;  // why
  if (!way_ || address.empty()) {
    hopeless.emplace();
  } else {
    lock.unlock();
    joined = reach_successor(address, patience, flags, hopeless);
    lock.lock();
  }
  going_ = false;
  looked_at_ = std::chrono::steady_clock::now();
  gone_ = hopeless && !joined;
  if (gone_) why_gone_ = *hopeless;
  if (joined) {
    connection_ = std::move(joined->connection);
    server_ = std::move(joined->server);
    server_end_ = std::move(joined->server_end);
    successor_.clear();
    hopeless_at_.reset();
    for (const auto& [key, value] : when_gone_)
      connection_.queue(request_of(next_id_++, Verb::set_when_gone, key, value, 0));
    for (const auto& [prefix, sharers] : shared_)
      connection_.queue(request_of(next_id_++, Verb::share, prefix, sharers, 0));
    for (const auto& [id, call] : calls_)
      if (!call.status) connection_.queue(call.request);
    lost_ = !connection_.flush();
    take_replies();
  }
  changed_.notify_all();
  return !gone_;
}

std::optional<Joined> StoreClient::reach_successor(const std::string& address,
                                                   const Patience& patience, std::uint32_t flags,
                                                   std::optional<std::string>& hopeless) const {
  SystemRandom random;
  Store::Deadline until = *hopeless_at_;
  try {
    const auto route = route_to(*way_, address, random);
    while (route != nullptr) {
      std::string obstacle;
      bool answered = false;
      auto joined = try_to_join(*route, way_->job, rank_, way_->applying(flags),
                                patience.at_most_until(until), obstacle, answered);
      if (joined) return joined;
      if (answered) until = *hopeless_at_ + (kTakeOverLimit - kReachLimit);
      const auto now = std::chrono::steady_clock::now();
      if (now >= until) break;
      if (patience.over()) return std::nullopt;
      std::this_thread::sleep_until(std::min(patience.deadline, now + kPauseBetween));
    }
    hopeless.emplace();
  } catch (const Error& error) {  // Else what listens there is not the server that stood by.
    hopeless = error.kind() == ErrorKind::peer_lost ? error.what() : "";
  }
  return std::nullopt;
}

void StoreClient::refuse(Ended how, Verb verb, std::string_view key) const {
  assert(how != Ended::done);
  if (how == Ended::lost && !why_gone_.empty())
    throw Error(ErrorKind::peer_lost, fmt::format("{}: {} (this call was for {})",
                                                  describe_rank(rank_), why_gone_, shown(key)));
  if (how == Ended::lost)
    throw Error(ErrorKind::peer_lost,
                fmt::format("{}: the store is gone: rank 0 ({}) has ended or closed it{}; start "
                            "the job again (this call was for {})",
                            describe_rank(rank_), server_,
                            way_ ? ", and no other rank that stood by for it can be reached" : "",
                            shown(key)));
  if (how == Ended::given_up) refuse_given_up(key);
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
