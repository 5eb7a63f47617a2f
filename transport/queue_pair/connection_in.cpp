// Takes what the devices have done for a connection, and brings the frames that have arrived over
// several paths into their order.
#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include <tutti/error.hpp>

#include "transport/queue_pair/connection.h"

namespace tutti::qp {

std::size_t Connection::take_completions() {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < paths_.size() && !broken_; ++i) taken += take_completions(*paths_[i]);
  assert(is_sound());
  return taken;
}

std::size_t Connection::take_completions(Path& path) {
  std::array<Completion, 16> completions{};
  std::size_t taken = 0;
  for (std::size_t count = completions.size(); count == completions.size() && !broken_;) {
    count = path.pair().poll(completions);
    assert(count <= completions.size());
    for (std::size_t i = 0; i < count; ++i)
      if (!broken_)
        handle(path, completions[i]);
      else if (completions[i].what == Completion::What::read)
        forget_read(path, completions[i].id);
    taken += count;
  }
  if (path.state == Path::State::failed) {
    if (taken > 0) path.until.reset();  // The device is at work.
    give_up_reads(path);
  }
  return taken;
}

// Where a device cannot be asked, frames are lost that the peer takes for arrived.
void Connection::handle(Path& path, const Completion& completion) {
  if (completion.what == Completion::What::nothing) return end_with_device(completion.error);
  if (completion.error != nullptr) fail(path, completion.error);
  switch (completion.what) {
    case Completion::What::received:
      path.has_received();
      if (completion.error == nullptr) received(path, completion.id, completion.bytes);
      return;
    case Completion::What::read:
      if (completion.error == nullptr) return has_read(path, completion.id);
      return give_up(forget_read(path, completion.id));
    case Completion::What::sent: return sent(path, completion);
    case Completion::What::nothing: return;
  }
}

void Connection::sent(Path& path, const Completion& completion) {
  if (broken_) return;
  if (completion.error != nullptr) return doubt(path, completion.id);
  Frame frame;
  std::memcpy(&frame, path.sent(completion.id).data(), sizeof frame);
  if (frame.kind != FrameKind::room) sequence_.has_arrived(frame.sequence);
  path.free_slot(completion.id);
  path.has_acknowledged();
  set_unsent();
  // A thread that sleeps until its messages have left may not be this one.
  if (path.by_process() && !has_unsent()) notify_all_groups();
  give_room_back(path);  // There may have been no slot for it.
}

// Handles the frame in a slot, or lets it wait for those before it. The peer cannot change it any
// more.
void Connection::received(Path& path, std::uint32_t slot, std::size_t bytes) {
  assert(bytes <= kSlotBytes);
  Frame frame;
  const std::byte* const data = path.slot(slot);
  if (bytes < sizeof frame) return end(kNonsense);
  std::memcpy(&frame, data, sizeof frame);
  const bool room = frame.kind == FrameKind::room;
  // Such a frame takes no room, so a peer could send it without end. A probe gives back nothing.
  if (room && frame.room < path.counts().return_room_at && path.heard) return end(kNonsense);
  path.heard = true;
  if (!path.take_room(frame.room))
    return end("it gives back room that nobody had taken: is it damaged?");
  if (!room && frame.sequence != expected_) return hold(path, slot, bytes, frame.sequence);
  if (!room) {
    take(data, bytes);
    if (broken_) return;
  }
  make_ready(path, slot, room);
  give_room_back(path);
  if (held_count_ > 0) handle_held();
}

// Handles the frame that is next.
void Connection::take(const std::byte* data, std::size_t bytes) {
  ++expected_;
  if (again_until_ && ahead(expected_, *again_until_) >= 0) again_until_.reset();
  Frame frame;
  std::memcpy(&frame, data, sizeof frame);
  try {
    begin(frame, {data + sizeof frame, bytes - sizeof frame});
  } catch (const std::bad_alloc&) {
    end(kNoMemory, End::no_memory);
  } catch (const Error& error) {
    end(error.what(), End::no_memory);
  }
}

// Keeps a frame that has overtaken others on another path. One that has been handled, or waits
// already, has come again.
void Connection::hold(Path& path, std::uint32_t slot, std::size_t bytes, std::uint16_t sequence) {
  const int distance = ahead(sequence, expected_);
  if (distance >= static_cast<int>(kMostAhead)) return end(kNonsense);
  EarlyFrame& held = held_[sequence % kMostAhead];
  if (distance < 0 || held.bytes > 0) {
    make_ready(path, slot);
    return give_room_back(path);
  }
  held.path = &path;
  held.slot = slot;
  held.bytes = bytes;
  ++held_count_;
  if (path.state != Path::State::failed && !again_until_) return;
  move_held();
  give_room_back(path);
}

void Connection::handle_held() {
  while (held_[expected_ % kMostAhead].bytes > 0 && !broken_) {
    const EarlyFrame held = std::exchange(held_[expected_ % kMostAhead], EarlyFrame());
    --held_count_;
    take(held.own != nullptr ? held.own.get() : held.path->slot(held.slot), held.bytes);
    if (held.own != nullptr || broken_) continue;
    make_ready(*held.path, held.slot);
    give_room_back(*held.path);
  }
}

// Makes the slots ready in which frames wait for others: those may find no other room. Gives none
// back yet, since a caller may be sending.
void Connection::move_held() {
  for (EarlyFrame& held : held_) {
    if (held.bytes == 0 || held.own != nullptr) continue;
    held.own.reset(new (std::nothrow) std::byte[held.bytes]);
    if (held.own == nullptr) return end(kNoMemory);
    std::memcpy(held.own.get(), held.path->slot(held.slot), held.bytes);
    make_ready(*held.path, held.slot);
    if (broken_) return;
  }
}

// Makes a slot ready again, whose frame has been handled.
void Connection::make_ready(Path& path, std::uint32_t slot, bool room) {
  if (path.state == Path::State::failed) return;
  if (!path.receive(slot)) return fail(path, "its queue pair takes no request to receive");
  if (!room && !path.has_handled()) end("it sent more frames than it had room for");
}

}  // namespace tutti::qp
