// Handles the frames that arrive over a connection, in their order; connection_in.cpp takes them,
// connection_out.cpp sends, and connection_paths.cpp sees to the paths.
#include "transport/queue_pair/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include <tutti/error.hpp>

#include "transport/queue_pair/endpoint.h"

namespace tutti::qp {
namespace {

// The frames that a process sent before it ended are taken to arrive without a pause of this
// length.
constexpr std::chrono::milliseconds kLastWords{20};

}  // namespace

Connection::Connection(Endpoint& endpoint, Device& device, const Clock& clock, bool at_once)
    : endpoint_(endpoint),
      registrations_(endpoint.registrations()),
      clock_(clock),
      name_(device.name()) {
  if (!at_once) return;
  Path& first = make_path(Path::kFirst, 0);
  first.state = Path::State::live;
  changes_paths_ = !first.by_process();
}

Connection::~Connection() {
  {
    const std::lock_guard lock(mutex_);  // Another thread may be in withdraw() until forget().
    for (const auto& path : paths_) path->destroy_pair();
    paths_.clear();
  }
  registrations_->forget(*this);
}

void Connection::open(std::uint32_t paths) {
  const std::lock_guard lock(mutex_);
  wanted_paths_ = paths;
  first_path().open(slots_of_path(paths));
}

void Connection::postpone(std::uint32_t paths) noexcept {
  const std::lock_guard lock(mutex_);
  assert(changes_paths_ && !control_);
  paths_.clear();
  wanted_paths_ = paths;
  needs_paths_ = false;
  next_ports_ = 0;
}

bool Connection::is_sound() const {
  const bool incoming =
      incoming_.there <= incoming_.bytes && (incoming_.channel == nullptr || !incoming_.none());
  return incoming && ended() == !why_ended_.empty() &&
         std::all_of(paths_.begin(), paths_.end(),
                     [](const auto& path) { return path->is_sound(); });
}

void Connection::add(Group& group) {
  const std::lock_guard lock(mutex_);
  const bool added = groups_.emplace(group.id, &group).second;
  assert(added);
  static_cast<void>(added);
}

void Connection::remove(const Group& group) {
  Lock lock(mutex_);
  const auto of_group = [&](const Reading& reading) { return &reading.channel->group == &group; };
  put_back_reads(of_group);
  each_offer([&](Sender& sender, Sender::Offered& offered) {
    if (&sender.group == &group) finish(sender, offered);  // Nobody hears of its answer.
  });
  groups_.erase(group.id);  // No read of it begins from now on.
  try {
    for (const auto& [number, channel] : group.channels) {
      Receiver& receiver = channel->receiver;
      for (std::uint32_t message = receiver.released; message != receiver.announced; ++message)
        if (receiver.at(message).state == Receiver::Arrival::State::offered)
          reply(group.id, number, static_cast<std::uint16_t>(message), FrameKind::taken);
    }
  } catch (...) {
    end(kNoMemory);
  }
  if (incoming_.channel != nullptr && &incoming_.channel->group == &group)
    incoming_ = {nullptr, incoming_.bytes, incoming_.there};
  for (Unsent& unsent : unsent_)
    if (unsent.channel != nullptr && &unsent.channel->group == &group) {
      unsent.keep();
      unsent.channel = nullptr;
    }
  await_reads(lock, Serve::all_peers, of_group);
}

void Connection::revoke(Group& group) noexcept {
  Lock lock(mutex_);
  for (const auto& [number, channel] : group.channels) channel->receiver.expected.reset();
  const auto to_program = [&](const Reading& reading) {
    return &reading.channel->group == &group && reading.arrival().in_program();
  };
  put_back_reads(to_program);
  try {
    for (const auto& [number, channel] : group.channels) move_out(channel->receiver);
    for (Unsent& unsent : unsent_)
      if (unsent.channel != nullptr && &unsent.channel->group == &group) unsent.keep();
    each_offer([&](Sender& sender, Sender::Offered& offered) {
      if (&sender.group != &group || std::exchange(offered.dropped, true)) return;
      withdraw(sender, offered);
      --sender.in_program;
    });
  } catch (...) {
    // A message that has been begun cannot be left out, so nothing more is sent or received.
    end(kNoMemory);
  }
  await_reads(lock, Serve::all_peers, to_program);
  await_replies(lock, Serve::all_peers, [&](const Sender& sender, const Sender::Offered&) {
    return &sender.group == &group;
  });
}

// Moves messages that arrive, or will, from the program's memory to the channel's.
void Connection::move_out(Receiver& channel) {
  using State = Receiver::Arrival::State;
  for (std::uint32_t message = channel.released; message != channel.announced; ++message) {
    Receiver::Arrival& arrival = channel.at(message);
    if (!arrival.in_program() ||
        (arrival.state != State::arriving && arrival.state != State::declined))
      continue;
    const std::byte* const from = arrival.payload;
    std::byte* const own = stage(channel, arrival);
    if (incoming_.arrival != &arrival) continue;
    std::memcpy(own, from, incoming_.there);
    incoming_.begin = own;
  }
}

std::optional<Message> Connection::peek(Receiver& channel) {
  const std::lock_guard lock(mutex_);
  if (!channel.has_message()) {
    reread();
    if (!channel.has_message()) return std::nullopt;
  }
  const Receiver::Arrival& first = channel.first();
  const std::byte* const data =
      first.state == Receiver::Arrival::State::complete ? first.payload : nullptr;
  return Message{data, first.header, false, data == nullptr};
}

const std::byte* Connection::get(Receiver& channel, const Memory& place) {
  using State = Receiver::Arrival::State;
  const std::lock_guard lock(mutex_);
  channel.reads_ahead = place.address == nullptr;
  if (!channel.has_message()) {
    channel.expected = place.address != nullptr ? std::optional(place) : std::nullopt;
    reread();
    return nullptr;
  }
  // Another thread may have received the message since the caller looked, so that nobody has
  // compared its length.
  Receiver::Arrival& first = channel.first();
  const std::size_t bytes = first.header.length;
  if (place.address != nullptr && bytes > place.bytes) return nullptr;
  if (first.state == State::offered) reread();  // It may have been withdrawn.
  if (first.state == State::offered) begin_read(channel, channel.released, place);
  if (place.address != nullptr) expect_behind(channel, place.part(bytes, place.bytes - bytes));
  if (first.state != State::complete) reread();
  if (first.state != State::complete) return nullptr;
  if (place.address == nullptr || first.payload == place.address) return first.payload;
  std::memcpy(place.address, first.payload, bytes);
  return place.address;
}

// The rest of a place is for the messages behind the first, one after the other.
void Connection::expect_behind(Receiver& channel, Memory rest) {
  for (std::uint32_t message = channel.released + 1; message != channel.announced; ++message) {
    const Receiver::Arrival& arrival = channel.at(message);
    if (!goes_to(arrival, rest)) rest = {};
    if (rest.address == nullptr) break;
    if (arrival.state == Receiver::Arrival::State::offered) begin_read(channel, message, rest);
    rest = rest.part(arrival.header.length, rest.bytes - arrival.header.length);
  }
  channel.expected = rest.bytes > 0 ? std::optional(rest) : std::nullopt;
}

// Returns the place that the caller has named for a message that has just been announced, or one
// without an address.
Memory Connection::take_place(Receiver& channel, const Receiver::Arrival& arrival) {
  const Memory place = std::exchange(channel.expected, std::nullopt).value_or(Memory());
  if (!goes_to(arrival, place)) return {};
  const std::size_t bytes = arrival.header.length;
  if (bytes < place.bytes) channel.expected = place.part(bytes, place.bytes - bytes);
  return place;
}

void Connection::release(Receiver& channel) {
  const std::lock_guard lock(mutex_);
  Receiver::Arrival& first = channel.first();
  assert(first.state == Receiver::Arrival::State::complete && channel.unreturned < kWindow);
  if (first.staged != nullptr) channel.staging.free(std::exchange(first.staged, nullptr));
  ++channel.released;
  if (++channel.unreturned >= kReturnAt) send_credit(channel);
}

// Takes all completions that there are, for a thread that waits.
void Connection::reread() {
  if (polls_control()) take_notes();
  take_completions();
  if (has_queue()) send_queue();
}

void Connection::pump() {
  const std::lock_guard lock(mutex_);
  for (;;) {
    // The endpoint tells of a few control connections at a time, which a peer that has ended may
    // wait for longer than for its last words.
    if (polls_control() || quiet_since_) take_notes();
    const std::size_t taken = take_completions();
    if (has_queue()) send_queue();
    if (broken_) return;
    const TimePoint now = clock_.now();
    if (quiet_since_) {
      if (taken > 0) quiet_since_ = now;
      if (now >= *quiet_since_ + kLastWords) end(std::move(why_peer_ended_));
    }
    tend_paths(now);
    // Threads that sleep rely on the events that this one has taken.
    if (broken_ || !endpoint_.anybody_asleep() || !arm_paths()) return;
  }
}

// Returns whether any path was not armed yet.
bool Connection::arm_paths() {
  bool any = false;
  for (const auto& path : paths_) {
    if (std::exchange(path->armed, true)) continue;
    path->pair().arm();
    any = true;
  }
  return any;
}

void Connection::arm() {
  const std::lock_guard lock(mutex_);
  if (!broken_) arm_paths();
  // Nothing announces that kLastWords is over.
  if (quiet_since_ && !broken_) notify_all_groups();
  reread();
}

void Connection::take_event() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& path : paths_) path->armed = false;
}

Group* Connection::find(std::uint32_t id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second;
}

// Takes what a frame says of released messages. Returns false where it cannot be.
bool Connection::take_credits(const Frame& frame, Group* group) {
  if (frame.released == 0 || group == nullptr) return true;
  if (frame.channel < 0 || frame.channel > kMostChannel) return false;
  Sender& sender = group->channel(frame.channel).sender;
  const auto unsent = std::count_if(unsent_.begin(), unsent_.end(),
                                    [&](const Unsent& each) { return each.channel == &sender; });
  if (frame.released + static_cast<std::uint32_t>(unsent) > sender.posted - sender.released)
    return false;
  for (std::uint32_t released = frame.released; released > 0; --released)
    if (sender.offer(static_cast<std::uint16_t>(sender.released++)) != nullptr) return false;
  group->context.wake_sleepers();
  return true;
}

// Handles a frame. An unknown group belongs to a communicator that has been destroyed here, or that
// has not been made yet (and which requests the peer's status page once it is made). A rank without
// memory receives no more messages, but sends those that it has.
void Connection::begin(const Frame& frame, std::span<const std::byte> payload) {
  Group* const group = find(frame.group);
  if (!take_credits(frame, group))
    return end("it gives back room that nobody had taken: is it damaged?");
  if (ended()) return;
  const bool between = !incoming_.none();
  switch (frame.kind) {
    case FrameKind::message:
      if (between) break;
      return begin_message(frame, group, payload);
    case FrameKind::more:
      if (!between) break;
      return add_part(payload);
    case FrameKind::credit:
      if (!payload.empty()) break;
      return;
    case FrameKind::room: break;
    case FrameKind::status_page:
      if (payload.size() != kStatusPageBytes) break;
      return take_status_page(group, payload);
    case FrameKind::status_page_request:
      if (!payload.empty()) break;
      if (group != nullptr) send_status_page(*group);
      return;
    case FrameKind::offer: return begin_offer(frame, group, payload);
    case FrameKind::answer:
      if (between) break;
      return begin_answer(frame, group, payload);
    case FrameKind::taken:
    case FrameKind::decline:
    case FrameKind::withdraw:
      if (!payload.empty()) break;
      return frame.kind == FrameKind::withdraw ? take_withdrawal(frame, group)
                                               : take_reply(frame, group);
  }
  end(kNonsense);
}

// Takes a message or an offer into its channel, as the last that is announced there. Returns null
// where it cannot be.
Receiver* Connection::announce(const Frame& frame, Group& group) {
  const std::size_t bytes = frame.header.length;
  if (frame.channel < 0 || frame.channel > kMostChannel ||
      bytes > group.context.max_message_bytes) {
    end(fmt::format("it sent a message of {} bytes on channel {}, which cannot be", bytes,
                    frame.channel));
    return nullptr;
  }
  Receiver& channel = group.channel(frame.channel).receiver;
  if (channel.announced - channel.released == kWindow) {
    end("it sent more messages than there was room for");
    return nullptr;
  }
  Receiver::Arrival& arrival = channel.at(channel.announced++);
  arrival = {};
  arrival.header = frame.header;
  return &channel;
}

// Gives a message a block of its channel.
std::byte* Connection::stage(Receiver& channel, Receiver::Arrival& arrival) {
  assert(arrival.staged == nullptr);
  arrival.payload = arrival.staged = channel.staging.next();
  channel.staging.use(arrival.staged);
  return arrival.staged;
}

void Connection::begin_message(const Frame& frame, Group* group,
                               std::span<const std::byte> payload) {
  incoming_ = {nullptr, frame.header.length, 0};
  if (group != nullptr) {
    Receiver* const channel = announce(frame, *group);
    if (channel == nullptr) return;
    Receiver::Arrival& arrival = channel->at(channel->announced - 1);
    arrival.payload = take_place(*channel, arrival).address;
    if (arrival.payload == nullptr) stage(*channel, arrival);
    incoming_.begin = arrival.payload;
    incoming_.channel = channel;
    incoming_.arrival = &arrival;
  }
  add_part(payload);
}

// All parts of a message but the last fill their slots.
void Connection::add_part(std::span<const std::byte> payload) {
  const std::size_t left = incoming_.bytes - incoming_.there;
  if (payload.size() != std::min(left, kPartBytes)) return end(kNonsense);
  if (incoming_.begin != nullptr && !payload.empty())
    std::memcpy(incoming_.begin + incoming_.there, payload.data(), payload.size());
  incoming_.there += payload.size();
  if (!incoming_.none()) return;
  const Incoming complete = std::exchange(incoming_, Incoming{});
  if (complete.channel == nullptr) return;
  complete.arrival->state = Receiver::Arrival::State::complete;
  complete.channel->group.context.wake_sleepers();
}

void Connection::take_status_page(Group* group, std::span<const std::byte> payload) {
  if (group == nullptr) return;
  StatusPageBytes bytes{};
  assert(payload.size() == bytes.size());
  std::memcpy(bytes.data(), payload.data(), bytes.size());
  group->peer_page.receive(bytes, clock_.now());
  group->context.wake_sleepers();
}

void Connection::notify_all_groups() const {
  for (const auto& [id, group] : groups_) group->context.wake_sleepers();
}

void Connection::end_with_peer(const char* why) {
  const std::lock_guard lock(mutex_);
  if (broken_ || quiet_since_) return;
  why_peer_ended_ = why;
  quiet_since_ = clock_.now();
}

// Ends the connection. Unless it is lost, this rank still sends, so that its status page tells the
// peer why.
void Connection::end(std::string why, End how) {
  if (broken_ || (ended() && how != End::lost)) return;
  if (how == End::lost) {
    broken_ = true;
    for (const auto& path : paths_) path->pair().stop();
    drop_queue();
    drop_offers();
  }
  why_ended_ = std::move(why);
  assert(!why_ended_.empty());
  incoming_ = {};
  end_.store(how, std::memory_order_release);
  notify_all_groups();
}

}  // namespace tutti::qp
