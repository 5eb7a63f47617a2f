#include "transport/queue_pair/channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include <tutti/error.hpp>

#include "transport/queue_pair/connection.h"

namespace tutti::qp {

std::byte* Staging::next() {
  for (const Block& block : blocks_)
    if (!block.used) return block.pages->data();
  assert(blocks_.size() < kWindow);
  try {
    blocks_.push_back({std::make_unique<Pages>(bytes_), nullptr, false});
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::unavailable,
                fmt::format("no memory for a channel's message ({} bytes): make "
                            "TUTTI_MESSAGE_BYTES smaller",
                            bytes_));
  }
  return blocks_.back().pages->data();
}

Staging::Block& Staging::find(const std::byte* block) noexcept {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const Block& each) { return each.pages->data() == block; });
  assert(found != blocks_.end());
  return *found;
}

void Staging::add_to(Registrations& registrations, const std::byte* block) {
  Block& found = find(block);
  if (found.registered == nullptr)
    found.registered = registrations.add(found.pages->data(), bytes_, false);
}

std::optional<Message> Receiver::peek() { return connection_.peek(*this); }

const std::byte* Receiver::get(const Memory& place) { return connection_.get(*this, place); }

void Receiver::release() { connection_.release(*this); }

std::optional<Span> Sender::acquire(std::size_t bytes) { return connection_.acquire(*this, bytes); }

bool Sender::acquire_zero_copy(const Memory& message) {
  return connection_.acquire_in_place(*this, message);
}

bool Sender::zero_copy_done() const noexcept { return connection_.has_copied(*this); }

void Sender::post(const Header& header) { connection_.post(*this, header); }

Group::Channel& Group::channel(int its_number) {
  assert(its_number >= 0);
  std::unique_ptr<Channel>& made = channels[its_number];
  if (made == nullptr)
    made.reset(new Channel{{connection, *this, its_number, context.max_message_bytes},
                           {connection, *this, its_number, context.max_message_bytes}});
  return *made;
}

std::size_t Group::memory_bytes() const {
  std::size_t bytes = sizeof *this;
  for (const auto& [its_number, channel] : channels)
    bytes += channel->sender.staging.memory_bytes() + channel->receiver.staging.memory_bytes();
  return bytes;
}

}  // namespace tutti::qp
