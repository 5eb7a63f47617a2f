// Handles messages that the receiver's device reads where they lie in the sender's memory.
#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include <tutti/error.hpp>

#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/endpoint.h"

namespace tutti::qp {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ArrivalState = Receiver::Arrival::State;

// A device that reads has failed where it has not finished after the first; its requests are
// cancelled then, for which the second is enough. A peer's program that runs answers a withdrawal
// within the third.
constexpr milliseconds kReadLimit{5000}, kCancelLimit{1000}, kReplyLimit{1000};
constexpr std::chrono::microseconds kPause{50};
constexpr const char* kNotOffered = "it speaks of messages that it was not offered: is it damaged?";

}  // namespace

// Offers a message to the peer where it lies in memory that the peer's device can read.
bool Connection::offer(Sender& channel, const Header& header, const Memory& message) {
  if (broken_ || registrations_->empty()) return false;
  Path* const path = path_to_read(message.bytes);
  if (path == nullptr) return false;
  Registrations::Use use = registrations_->use(*this, *path, message.address, message.bytes, true);
  if (!use) return false;
  const auto number = static_cast<std::uint16_t>(channel.posted++);
  Sender::Offered& offered = channel.offers[number % kWindow];
  assert(!offered.under_way && "the peer has answered before it released the message");
  const auto address = reinterpret_cast<std::uintptr_t>(message.address);
  const Offer offer{address, use.remote_key(), path->number};
  offered = {true, false, number, header, offer, std::move(use), nullptr};
  Unsent unsent = unsent_of(channel, FrameKind::offer, header);
  unsent.frame.number = number;
  unsent.data = reinterpret_cast<const std::byte*>(&offered.offer);
  unsent.bytes = sizeof offered.offer;
  ++traffic_.offers;
  path->offered_bytes += message.bytes;
  send(std::move(unsent));
  return true;
}

// Returns a path over which the peer may read a message, or null. It is the one that has least to
// be read, so that each path gets a share by its bandwidth; of several, paths take turns.
Path* Connection::path_to_read(std::size_t bytes) noexcept {
  Path* least = nullptr;
  for (std::size_t tried = 0; tried < paths_.size(); ++tried) {
    if (++turn_ >= paths_.size()) turn_ = 0;
    Path& path = *paths_[turn_];
    const ReadLimits limits = path.pair().reads();
    if (!path.is_live() || !limits.peer_reads || bytes > limits.bytes) continue;
    if (least == nullptr || path.offered_bytes < least->offered_bytes) least = &path;
  }
  return least;
}

void Connection::begin_offer(const Frame& frame, Group* group, std::span<const std::byte> payload) {
  Offer offer;
  if (payload.size() != sizeof offer || !incoming_.none() || frame.header.length == 0)
    return end(kNotOffered);
  std::memcpy(&offer, payload.data(), sizeof offer);
  // Nobody will read it.
  if (group == nullptr) return reply(frame.group, frame.channel, frame.number, FrameKind::taken);
  Receiver* const announced = announce(frame, *group);
  if (announced == nullptr) return;
  Receiver& channel = *announced;
  const std::uint32_t message = channel.announced - 1;
  Receiver::Arrival& arrival = channel.at(message);
  if (frame.number != static_cast<std::uint16_t>(message)) return end(kNotOffered);
  arrival.state = ArrivalState::offered;
  arrival.offer = offer;
  // Messages behind another are read while that one is: without waiting, at the price of a copy.
  const Memory place = take_place(channel, arrival);
  if (place || channel.reads_ahead || message != channel.released)
    begin_read(channel, message, place);
  group->context.wake_sleepers();
}

// Reads an offered message to `place` if that is registered, and else to memory of the channel.
void Connection::begin_read(Receiver& channel, std::uint32_t message, const Memory& place) {
  if (broken_) return;
  Receiver::Arrival& arrival = channel.at(message);
  assert(arrival.state == ArrivalState::offered && arrival.payload == nullptr);
  const std::size_t bytes = arrival.header.length;
  Path* const path = find_path(arrival.offer.path);
  if (path == nullptr || path->state == Path::State::failed)
    return decline(channel, message, place);
  const ReadLimits limits = path->pair().reads();
  if (limits.at_once == 0 || bytes > limits.bytes) return decline(channel, message, place);
  Reading reading{&channel, message, {}};
  if (goes_to(arrival, place))
    reading.use = registrations_->use(*this, *path, place.address, bytes, false);
  if (reading.use) {
    arrival.payload = place.address;
  } else {
    channel.staging.add_to(*registrations_, stage(channel, arrival));
    reading.use = registrations_->use(*this, *path, arrival.staged, bytes, false);
  }
  if (!reading.use) return decline(channel, message, place);
  arrival.state = ArrivalState::reading;
  path->to_read.push_back(std::move(reading));
  post_reads(*path);
}

// Gives the device as many requests as both devices allow: further ones would hold up what is sent.
void Connection::post_reads(Path& path) {
  const std::uint32_t most = std::min(path.pair().reads().at_once, kMostReads);
  while (!path.to_read.empty() && path.reads < most && !broken_ &&
         path.state != Path::State::failed) {
    const auto free = std::find(path.reading.begin(), path.reading.end(), std::nullopt);
    assert(free != path.reading.end());
    path.await_acknowledgements();
    *free = std::move(path.to_read.front());
    path.to_read.pop_front();
    ++path.reads;
    const Receiver::Arrival& arrival = (*free)->arrival();
    const auto id = static_cast<std::uint32_t>(free - path.reading.begin());
    const Piece to{arrival.payload, arrival.header.length, (*free)->use.local_key()};
    if (path.pair().read(id, to, arrival.offer.address, arrival.offer.remote_key)) continue;
    path.to_read.push_front(forget_read(path, id));
    return fail(path, "its queue pair takes no request to read");
  }
}

void Connection::has_read(Path& path, std::uint32_t id) {
  const Reading reading = forget_read(path, id);
  path.has_acknowledged();
  Receiver::Arrival& arrival = reading.arrival();
  arrival.state = ArrivalState::complete;
  traffic_.read_bytes += arrival.header.length;
  const Receiver& channel = *reading.channel;
  reply(channel.group.id, channel.number, static_cast<std::uint16_t>(reading.message),
        FrameKind::taken);
  channel.group.context.wake_sleepers();
  post_reads(path);
}

// A message whose path has failed before it was read is declined when the receiver comes to it,
// unless its group is gone.
void Connection::give_up(const Reading& reading) {
  if (broken_) return;
  const Receiver& channel = *reading.channel;
  if (find(channel.group.id) != &channel.group)
    return reply(channel.group.id, channel.number, static_cast<std::uint16_t>(reading.message),
                 FrameKind::taken);
  put_back(reading);
  channel.group.context.wake_sleepers();
}

void Connection::give_up_reads(Path& path) {
  while (!path.to_read.empty() && !broken_) {
    const Reading first = std::move(path.to_read.front());
    path.to_read.pop_front();
    give_up(first);
  }
}

// Asks for an offered message in slots.
void Connection::decline(Receiver& channel, std::uint32_t message, const Memory& place) {
  Receiver::Arrival& arrival = channel.at(message);
  if (goes_to(arrival, place)) {
    if (arrival.staged != nullptr) channel.staging.free(std::exchange(arrival.staged, nullptr));
    arrival.payload = place.address;
  } else if (arrival.staged == nullptr) {
    stage(channel, arrival);
  }
  arrival.state = ArrivalState::declined;
  ++traffic_.declined;
  reply(channel.group.id, channel.number, static_cast<std::uint16_t>(message), FrameKind::decline);
}

void Connection::reply(std::uint32_t group, int channel, std::uint16_t number, FrameKind kind) {
  Unsent unsent;
  unsent.frame.kind = kind;
  unsent.frame.group = group;
  unsent.frame.channel = channel;
  unsent.frame.number = number;
  send(std::move(unsent));
}

// Takes the peer's answer to an offer. A message that it does not read is sent in slots, unless its
// call has failed.
void Connection::take_reply(const Frame& frame, Group* group) {
  if (group == nullptr) return;
  if (frame.channel < 0 || frame.channel > kMostChannel) return end(kNotOffered);
  Sender& channel = group->channel(frame.channel).sender;
  Sender::Offered* const offered = channel.offer(frame.number);
  if (offered == nullptr) return end(kNotOffered);
  if (frame.kind == FrameKind::taken || offered->dropped) {
    finish(channel, *offered);
  } else {
    Unsent unsent = unsent_of(channel, FrameKind::answer, offered->header);
    unsent.frame.number = frame.number;
    unsent.bytes = offered->header.length;
    unsent.own = std::move(offered->own);
    unsent.data = unsent.own != nullptr
                      ? unsent.own.get()
                      : reinterpret_cast<const std::byte*>(offered->offer.address);
    unsent.use = std::move(offered->use);
    unsent.in_program = true;
    ++channel.in_program;  // finish() says that the offer needs the memory no more
    finish(channel, *offered);
    send(std::move(unsent));
  }
  group->context.wake_sleepers();
}

void Connection::finish(Sender& channel, Sender::Offered& offered) noexcept {
  if (!offered.dropped) --channel.in_program;
  if (Path* const path = find_path(offered.offer.path))
    path->offered_bytes -= offered.header.length;
  offered = {};
}

void Connection::begin_answer(const Frame& frame, Group* group,
                              std::span<const std::byte> payload) {
  incoming_ = {nullptr, frame.header.length, 0, nullptr, nullptr};
  if (group != nullptr) {
    if (frame.channel < 0 || frame.channel > kMostChannel) return end(kNotOffered);
    Receiver& channel = group->channel(frame.channel).receiver;
    Receiver::Arrival* const arrival = channel.find(frame.number);
    if (arrival == nullptr || arrival->state != ArrivalState::declined ||
        arrival->header != frame.header)
      return end(kNotOffered);
    arrival->state = ArrivalState::arriving;
    incoming_.begin = arrival->payload;
    incoming_.channel = &channel;
    incoming_.arrival = arrival;
  }
  add_part(payload);
}

// The peer's memory is about to end. A message that is being read, or has been, is answered with
// `taken`, and what is said about one that is complete has crossed the answer.
void Connection::take_withdrawal(const Frame& frame, Group* group) {
  if (group == nullptr) return;
  if (frame.channel < 0 || frame.channel > kMostChannel) return end(kNotOffered);
  Receiver& channel = group->channel(frame.channel).receiver;
  const Receiver::Arrival* const arrival = channel.find(frame.number);
  if (arrival == nullptr) return;
  put_back_reads([&](const Reading& reading) { return &reading.arrival() == arrival; });
  if (arrival->state != ArrivalState::offered) return;
  const auto ahead = static_cast<std::uint16_t>(frame.number - channel.released);
  decline(channel, channel.released + ahead, {});
}

void Connection::withdraw(Sender& channel, Sender::Offered& offered) {
  reply(channel.group.id, channel.number, offered.number, FrameKind::withdraw);
}

void Connection::withdraw(std::uint32_t memory, const std::byte* data, std::size_t bytes) noexcept {
  Lock lock(mutex_);
  const auto there = [&](const Reading& reading) { return reading.use.memory() == memory; };
  put_back_reads(there);
  try {
    for (Unsent& unsent : unsent_)
      if (unsent.in_program && unsent.data >= data && unsent.data < data + bytes) unsent.keep();
    each_offer([&](Sender& sender, Sender::Offered& offered) {
      if (!offered.use || offered.use.memory() != memory || offered.own != nullptr) return;
      const std::size_t length = offered.header.length;
      offered.own = std::make_unique_for_overwrite<std::byte[]>(length);
      std::memcpy(offered.own.get(), reinterpret_cast<const void*>(offered.offer.address), length);
      withdraw(sender, offered);
    });
  } catch (...) {
    end("out of memory");
  }
  // Any thread may destroy a Buffer, also while the endpoint ends.
  await_reads(lock, Serve::this_peer, there);
  await_replies(lock, Serve::this_peer, [&](const Sender&, const Sender::Offered& offered) {
    return offered.use && offered.use.memory() == memory;
  });
}

// The peer reads nothing over a connection that has ended.
void Connection::drop_offers() noexcept {
  each_offer([this](Sender& sender, Sender::Offered& offered) { finish(sender, offered); });
}

void Connection::put_back(const Reading& reading) noexcept {
  Receiver::Arrival& arrival = reading.arrival();
  if (arrival.staged != nullptr) reading.channel->staging.free(arrival.staged);
  arrival.payload = arrival.staged = nullptr;
  arrival.state = ArrivalState::offered;
}

// Takes back reads with which the device has not begun.
void Connection::put_back_reads(const std::function<bool(const Reading&)>& which) noexcept {
  for (const auto& path : paths_) {
    std::erase_if(path->to_read, [&](const Reading& reading) {
      if (!which(reading)) return false;
      put_back(reading);
      return true;
    });
    if (broken_) continue;
    for (std::uint32_t id = 0; id < kMostReads; ++id) {
      const auto& reading = path->reading[id];
      if (!reading || !which(*reading) || !path->pair().take_back_read(id)) continue;
      put_back(forget_read(*path, id));
    }
  }
}

// Waits until the device works at none of these reads. Where it does not end them in time, the
// connection ends, and with it they do.
void Connection::await_reads(Lock& lock, Serve serve,
                             const std::function<bool(const Reading&)>& which) noexcept {
  const auto begin = steady_clock::now();
  const auto reads_some = [&](const std::unique_ptr<Path>& path) {
    return std::any_of(path->reading.begin(), path->reading.end(),
                       [&](const auto& reading) { return reading && which(*reading); });
  };
  for (;;) {
    const auto found = std::find_if(paths_.begin(), paths_.end(), reads_some);
    if (found == paths_.end()) return;
    Path& path = **found;
    const auto waited = steady_clock::now() - begin;
    if (broken_)
      take_cancelled_reads();
    else
      reread();
    if (waited > kReadLimit) fail(path, "its memory cannot be read");
    if (waited > kReadLimit + kCancelLimit) {
      end("its memory cannot be read");
      for (const auto& each : paths_) {
        each->destroy_pair();
        each->reading = {};
        each->reads = 0;
      }
    }
    pause(lock, serve);
  }
}

// Peers that wait likewise need the answers of this rank, on its other connections.
void Connection::pause(Lock& lock, Serve serve) noexcept {
  lock.unlock();
  if (serve == Serve::all_peers) endpoint_.progress();
  std::this_thread::sleep_for(kPause);
  lock.lock();
}

void Connection::take_cancelled_reads() noexcept {
  std::array<Completion, 16> completions{};
  for (const auto& path : paths_) {
    if (!path->has_pair()) continue;
    const std::size_t count = path->pair().poll(completions);
    for (std::size_t i = 0; i < count; ++i)
      if (completions[i].what == Completion::What::read) forget_read(*path, completions[i].id);
  }
}

Reading Connection::forget_read(Path& path, std::uint32_t id) noexcept {
  assert(id < kMostReads && path.reading[id]);
  --path.reads;
  return *std::exchange(path.reading[id], std::nullopt);
}

// Waits until the peer has said that it does not read these messages any more. Where it says
// nothing, its device is not let.
void Connection::await_replies(
    Lock& lock, Serve serve,
    const std::function<bool(const Sender&, const Sender::Offered&)>& which) noexcept {
  const auto begin = steady_clock::now();
  for (;;) {
    bool some = false;
    const bool late = steady_clock::now() - begin > kReplyLimit;
    each_offer([&](const Sender& sender, Sender::Offered& offered) {
      if (!which(sender, offered) || !offered.use) return;
      some = true;
      if (!late) return;
      registrations_->revoke(offered.use);
      offered.use = {};
    });
    if (!some || late) return;
    reread();
    pause(lock, serve);
  }
}

}  // namespace tutti::qp
