// Sends what leaves over a connection.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include <tutti/error.hpp>

#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/endpoint.h"

namespace tutti::qp {
namespace {

constexpr const char* kTakesNone = "its queue pair takes no request to send";

}  // namespace

void Unsent::keep() {
  if (own != nullptr || data == nullptr) return;
  own = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (bytes > 0) std::memcpy(own.get(), data, bytes);
  data = own.get();
}

bool Connection::has_room_for(Sender& channel, std::size_t bytes) {
  if (bytes > channel.max_message_bytes)
    throw Error(ErrorKind::internal,
                fmt::format("a message of {} bytes was asked of a channel whose largest is {}",
                            bytes, channel.max_message_bytes));
  if (channel.is_full()) reread();
  return !channel.is_full();
}

std::optional<Span> Connection::acquire(Sender& channel, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!has_room_for(channel, bytes)) return std::nullopt;
  channel.in_hand = Memory{channel.staging.next(), bytes};
  channel.in_place = false;
  return Span{channel.in_hand->address, bytes};
}

bool Connection::acquire_in_place(Sender& channel, const Memory& message) {
  const std::lock_guard lock(mutex_);
  if (!has_room_for(channel, message.bytes)) return false;
  assert(message.address != nullptr || message.bytes == 0);
  channel.in_hand = message;
  channel.in_place = true;
  return true;
}

bool Connection::has_copied(const Sender& channel) const noexcept {
  const std::lock_guard lock(mutex_);
  return channel.in_program == 0;
}

void Connection::post(Sender& channel, const Header& header) {
  const std::lock_guard lock(mutex_);
  assert(channel.in_hand && header.length == channel.in_hand->bytes && !channel.is_full());
  need_paths();
  const bool in_program = channel.in_place;
  if (in_program) ++channel.in_program;
  const Memory message = *std::exchange(channel.in_hand, std::nullopt);
  if (in_program && message.bytes >= kLeastOfferBytes && offer(channel, header, message)) return;
  Unsent unsent = unsent_of(channel, FrameKind::message, header);
  unsent.data = message.address;
  unsent.bytes = message.bytes;
  unsent.in_program = in_program;
  if (!in_program) {
    unsent.staged = message.address;
    channel.staging.use(unsent.staged);
  }
  ++channel.posted;
  send(std::move(unsent));
}

// Returns a frame with a message or an offer of a channel.
Unsent Connection::unsent_of(Sender& channel, FrameKind kind, const Header& header) {
  Unsent unsent;
  unsent.frame.kind = kind;
  unsent.frame.group = channel.group.id;
  unsent.frame.channel = channel.number;
  unsent.frame.header = header;
  Receiver& answers = channel.group.channel(channel.number).receiver;
  unsent.frame.released = static_cast<std::uint16_t>(std::exchange(answers.unreturned, 0));
  unsent.channel = &channel;
  return unsent;
}

// The memory of a message is free again: all of it is in slots, or nothing will be sent.
void Connection::has_left(const Unsent& unsent) noexcept {
  if (unsent.channel == nullptr) return;
  if (unsent.staged != nullptr) unsent.channel->staging.free(unsent.staged);
  if (unsent.in_program) --unsent.channel->in_program;
}

bool Connection::has_unsent_of(const Group& group) const {
  if (!has_unsent()) return false;
  const std::lock_guard lock(mutex_);
  return in_process() > 0 || !doubts_.empty() ||
         std::any_of(unsent_.begin(), unsent_.end(),
                     [&](const Unsent& unsent) { return unsent.frame.group == group.id; });
}

std::size_t Connection::unfinished() {
  const std::lock_guard lock(mutex_);
  reread();
  if (broken_) return 0;
  std::size_t frames = unsent_.size() + doubts_.size();
  for (const auto& path : paths_) frames += path->under_way();
  if (frames > 0) return frames;
  return std::all_of(paths_.begin(), paths_.end(),
                     [](const auto& path) { return path->pair().is_flushed(); })
             ? 0
             : 1;
}

bool Connection::awaits_device() const {
  const std::lock_guard lock(mutex_);
  return !broken_ && std::any_of(paths_.begin(), paths_.end(), [](const auto& path) {
    return !path->by_process() && path->under_way() > 0;
  });
}

void Connection::probe() {
  const std::lock_guard lock(mutex_);
  if (!broken_) send_room(first_path());
}

void Connection::send_credit(Receiver& channel) {
  Unsent unsent;
  unsent.frame.kind = FrameKind::credit;
  unsent.frame.group = channel.group.id;
  unsent.frame.channel = channel.number;
  unsent.frame.released = static_cast<std::uint16_t>(std::exchange(channel.unreturned, 0));
  send(std::move(unsent));
}

// Queues a frame behind those that wait, and sends what can be sent.
void Connection::send(Unsent unsent) {
  if (broken_) return has_left(unsent);
  try {
    unsent_.emplace_back();
  } catch (const std::bad_alloc&) {
    end("out of memory");
    return has_left(unsent);
  }
  unsent_.back() = std::move(unsent);
  send_queue();
}

// Sends the parts of queued frames as long as the peer has slots for them, and this rank has some
// to send from.
void Connection::send_queue() {
  const bool had = !unsent_.empty();
  bool left = false;
  while (send_again() && !unsent_.empty() && !sequence_.is_full()) {
    Path* const path = path_with_room();
    if (path == nullptr || !send_part(*path, unsent_.front())) break;
    Unsent& first = unsent_.front();
    if (first.sent < first.bytes) continue;
    has_left(first);
    unsent_.pop_front();
    left = true;
  }
  set_unsent();
  if (by_control_live_) watch_control();  // The thread may sleep next.
  // A thread that sleeps until its messages have left may not be the one that sends them.
  if (had && left) notify_all_groups();
}

// Sends the frames again that may not have arrived. Returns whether there is none left.
bool Connection::send_again() {
  while (!doubts_.empty()) {
    Path* const path = path_with_room();
    if (path == nullptr) return false;
    const InDoubt first = std::move(doubts_.front());
    doubts_.pop_front();
    if (path->send(first.frame, first.payload)) continue;
    doubt(*path, path->last_slot());
    fail(*path, kTakesNone);
    if (broken_) return false;
  }
  return true;
}

// Returns a path that can take a frame. Paths take turns, so that long messages use all of them.
Path* Connection::path_with_room() noexcept {
  if (turn_ >= paths_.size()) turn_ = 0;
  for (std::size_t tried = 0; tried < paths_.size(); ++tried) {
    if (paths_[turn_]->can_send()) return paths_[turn_].get();
    if (++turn_ == paths_.size()) turn_ = 0;
  }
  return nullptr;
}

// Returns false where the connection has ended.
bool Connection::send_part(Path& path, Unsent& unsent) {
  Frame frame = unsent.frame;
  if (unsent.begun) {
    frame.kind = FrameKind::more;
    frame.released = 0;
  }
  frame.sequence = sequence_.take();
  const std::size_t part = std::min(unsent.bytes - unsent.sent, kPartBytes);
  const std::span payload(unsent.data + unsent.sent, part);
  unsent.begun = true;
  unsent.sent += part;
  if (frame.kind == FrameKind::message || frame.kind == FrameKind::answer ||
      frame.kind == FrameKind::more)
    traffic_.slot_bytes += part;
  if (part > kPartBytes / 2) ++turn_;
  if (path.send(frame, payload)) return true;
  doubt(path, path.last_slot());
  fail(path, kTakesNone);
  return !broken_;
}

// Tells the peer which slots are ready again, unless the next frame will. A frame that tells only
// this needs no room at the peer.
void Connection::give_room_back(Path& path) {
  if (!path.owes_room() || broken_) return;
  if (has_queue()) send_queue();
  if (path.owes_room() && path.works() && path.has_slot() && !broken_) send_room(path);
}

void Connection::send_room(Path& path) {
  assert(path.has_slot() && !broken_);
  Frame frame;
  frame.kind = FrameKind::room;
  if (path.send(frame, {})) return;
  path.free_slot(path.last_slot());
  fail(path, kTakesNone);
}

void Connection::drop_queue() noexcept {
  for (const Unsent& unsent : unsent_) has_left(unsent);
  unsent_.clear();
  doubts_.clear();
  set_unsent();
}

// Frames that the device has taken have left, unless it is this process that sends them.
void Connection::set_unsent() noexcept {
  unsent_count_.store(unsent_.size() + doubts_.size() + in_process(), std::memory_order_relaxed);
}

std::size_t Connection::in_process() const noexcept {
  if (broken_ || (changes_paths_ && by_control_ == nullptr)) return 0;
  std::size_t frames = control_ && control_->unwritten() > 0 ? 1 : 0;
  for (const auto& path : paths_)
    if (path->by_process()) frames += path->under_way();
  return frames;
}

void Connection::put_status_page(const Group& group) {
  const std::lock_guard lock(mutex_);
  send_status_page(group);
}

void Connection::send_status_page(const Group& group) {
  // Only the newest page waits, however often a peer that takes none asks for it.
  std::erase_if(unsent_, [&](const Unsent& unsent) {
    return unsent.frame.kind == FrameKind::status_page && unsent.frame.group == group.id;
  });
  const StatusPageBytes status_page = read_status_page(*group.context.status_page);
  Unsent unsent;
  unsent.frame.kind = FrameKind::status_page;
  unsent.frame.group = group.id;
  unsent.data = status_page.data();
  unsent.bytes = status_page.size();
  try {
    unsent.keep();
  } catch (const std::bad_alloc&) {
    return end("out of memory");
  }
  send(std::move(unsent));
}

const StatusPage* Connection::recent_status_page(Group& group) {
  const std::lock_guard lock(mutex_);
  return group.peer_page.recent(clock_.now(), ended());
}

const StatusPage* Connection::status_page(Group& group) {
  const std::lock_guard lock(mutex_);
  const StatusPage* const page = group.peer_page.fresh(clock_.now(), ended());
  if (page == nullptr && group.peer_page.request()) {
    Unsent unsent;
    unsent.frame.kind = FrameKind::status_page_request;
    unsent.frame.group = group.id;
    send(std::move(unsent));
  }
  return page;
}

}  // namespace tutti::qp
