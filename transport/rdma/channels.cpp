#include "transport/rdma/channels.h"

#include <fmt/format.h>

#include <new>

#include <tutti/error.hpp>

#include "transport/rdma/connection.h"

namespace tutti::rdma {

std::byte* Staging::next() {
  assert(next_ <= memory_.size() && memory_.size() <= kWindow);
  if (next_ == memory_.size()) {
    // A sanitizer ends the process where an allocation that throws fails.
    std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes_ + 1]);
    if (memory == nullptr)
      throw Error(ErrorKind::unavailable,
                  fmt::format("no memory for a channel's message ({} bytes): make "
                              "TUTTI_MESSAGE_BYTES smaller",
                              bytes_));
    memory_.push_back(std::move(memory));
  }
  return memory_[next_].get();
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

}  // namespace tutti::rdma
