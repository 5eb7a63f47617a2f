// Handles what arrives over a connection; connection_out.cpp sends.
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

constexpr std::uint32_t kReceives = kReceiveSlots + kRoomSlots;
// The frames that a process sent before it ended are taken to arrive without a pause of this
// length.
constexpr std::chrono::milliseconds kLastWords{20};
// Devices give up after 4 s, some after four times as long as they are told.
constexpr std::chrono::seconds kSilence{25};
constexpr const char* kNoMemory = "out of memory";  // a string of it takes none
constexpr const char* kNonsense =
    "it sent what makes no sense: does it run another version, is it damaged?";

}  // namespace

Connection::Connection(Endpoint& endpoint, Device& device, const Clock& clock)
    : endpoint_(endpoint),
      registrations_(endpoint.registrations()),
      clock_(clock),
      name_(device.name()),
      queue_pair_(device.make({kSendSlots, kReceives, kMostReads}, this)),
      region_(queue_pair_->add(slots_.data(), Slots::kBytes, false)) {
  for (std::uint32_t slot = kSlots; slot-- > kReceives;) free_slots_.push_back(slot);
  assert(free_slots_.size() == kSendSlots);
}

Connection::~Connection() {
  queue_pair_.reset();  // From now on the device works with its memory no more.
  to_read_.clear();
  for (auto& reading : reading_) reading.reset();
  registrations_->forget(*this);
}

void Connection::open() {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t slot = 0; slot < kReceives; ++slot)
    if (!queue_pair_->receive(slot, {slots_.slot(slot), kSlotBytes, region_->local_key()}))
      throw Error(ErrorKind::unavailable, "the queue pair takes no requests to receive");
}

bool Connection::is_sound() const {
  const bool incoming =
      incoming_.there <= incoming_.bytes && (incoming_.channel == nullptr || !incoming_.none());
  return incoming && room_ <= kReceiveSlots && unreturned_room_ <= kReceiveSlots &&
         free_slots_.size() <= kSendSlots && ended() == !why_ended_.empty();
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
  take_completions();
  if (!unsent_.empty()) send_queue();
}

void Connection::pump() {
  const std::lock_guard lock(mutex_);
  for (;;) {
    const std::size_t taken = take_completions();
    if (!unsent_.empty()) send_queue();
    if (broken_) return;
    const TimePoint now = clock_.now();
    listen_for_silence(now);
    if (quiet_since_) {
      if (taken > 0) quiet_since_ = now;
      if (now >= *quiet_since_ + kLastWords) end(std::move(why_peer_ended_));
    }
    // Threads that sleep rely on the events that this one has taken.
    if (armed_ || broken_ || !endpoint_.anybody_asleep()) return;
    queue_pair_->arm();
    armed_ = true;
  }
}

// Ends the connection where the peer's device has long acknowledged nothing, and this rank's has
// not given up: soft-RoCE does not while its own port is down.
void Connection::listen_for_silence(TimePoint now) {
  if (queue_pair_->needs_peer_process()) return;
  if ((free_slots_.size() == kSendSlots && reads_ == 0) || acknowledged_then_ != acknowledged_) {
    acknowledged_then_ = acknowledged_;
    unchanged_since_ = now;
  }
  if (now >= unchanged_since_ + kSilence)
    end(fmt::format("its {} device has acknowledged nothing for {} s", name_, kSilence.count()));
}

void Connection::arm() {
  const std::lock_guard lock(mutex_);
  if (!armed_ && !broken_) {
    queue_pair_->arm();
    armed_ = true;
  }
  // Nothing announces that kLastWords is over.
  if (quiet_since_ && !broken_) notify_all_groups();
  reread();
}

void Connection::take_event() noexcept {
  const std::lock_guard lock(mutex_);
  armed_ = false;
}

std::size_t Connection::take_completions() {
  std::array<Completion, 16> completions{};
  std::size_t taken = 0;
  for (std::size_t count = completions.size(); count == completions.size() && !broken_;) {
    count = queue_pair_->poll(completions);
    assert(count <= completions.size());
    for (std::size_t i = 0; i < count; ++i)
      if (!broken_)
        handle(completions[i]);
      else if (completions[i].what == Completion::What::read)
        forget_read(completions[i].id);
    taken += count;
  }
  assert(is_sound());
  return taken;
}

void Connection::handle(const Completion& completion) {
  if (completion.what == Completion::What::read) {
    if (completion.error == nullptr) return has_read(completion.id);
    forget_read(completion.id);
  }
  if (completion.error != nullptr)
    return end(fmt::format("the {} connection to it has failed: {}", name_, completion.error));
  if (completion.what == Completion::What::received)
    return received(completion.id, completion.bytes);
  assert(completion.id >= kReceives && completion.id < kSlots);
  free_slots_.push_back(completion.id);
  set_unsent();
  // A thread that sleeps until its messages have left may not be this one.
  if (queue_pair_->needs_peer_process() && !has_unsent()) notify_all_groups();
  ++acknowledged_;
  give_room_back();  // There may have been no slot for it.
}

// Handles the frame in a slot, and makes the slot ready again. The peer cannot change it any more.
void Connection::received(std::uint32_t slot, std::size_t bytes) {
  assert(slot < kReceives && bytes <= kSlotBytes);
  Frame frame;
  const std::byte* const data = slots_.slot(slot);
  if (bytes < sizeof frame) return end(kNonsense);
  std::memcpy(&frame, data, sizeof frame);
  // Such a frame takes no room, so a peer could send it without end. A probe gives back nothing.
  if (frame.kind == FrameKind::room && frame.room < kReturnRoomAt && heard_) return end(kNonsense);
  heard_ = true;
  try {
    begin(frame, {data + sizeof frame, bytes - sizeof frame});
  } catch (const std::bad_alloc&) {
    end(kNoMemory, End::no_memory);
  } catch (const Error& error) {
    end(error.what(), End::no_memory);
  }
  if (broken_) return;
  if (!queue_pair_->receive(slot, {slots_.slot(slot), kSlotBytes, region_->local_key()}))
    return end("the queue pair takes no request to receive");
  if (frame.kind == FrameKind::room) return;
  if (unreturned_room_ == kReceiveSlots) return end("it sent more frames than it had room for");
  ++unreturned_room_;
  give_room_back();
}

Group* Connection::find(std::uint32_t id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second;
}

// Takes what a frame gives back. Returns false where it cannot be.
bool Connection::take_credits(const Frame& frame, Group* group) {
  if (frame.room > kReceiveSlots - room_) return false;
  room_ += frame.room;
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
    case FrameKind::room:
      if (!payload.empty()) break;
      return;
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

// Takes a message or an offer into its channel. Returns null where it cannot be.
Receiver::Arrival* Connection::announce(const Frame& frame, Group& group) {
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
  return &arrival;
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
    Receiver::Arrival* const arrival = announce(frame, *group);
    if (arrival == nullptr) return;
    Receiver& channel = group->channel(frame.channel).receiver;
    arrival->payload = take_place(channel, *arrival).address;
    if (arrival->payload == nullptr) stage(channel, *arrival);
    incoming_.begin = arrival->payload;
    incoming_.channel = &channel;
    incoming_.arrival = arrival;
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
    queue_pair_->stop();
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
