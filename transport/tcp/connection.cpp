#include "transport/tcp/connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

#include <tutti/error.hpp>

#include "net/tcp_socket.h"
#include "transport/tcp/endpoint.h"

namespace tutti::tcp {
namespace {

// The size of the inbox. A small message and its frame are read by one system call; at most this
// much of a large message is copied a second time.
constexpr std::size_t kInboxBytes = 8 << 10;
// When this many reads have wanted something behind a message that waits for its destination, the
// message is read to memory of its channel.
constexpr int kPatience = 4;
constexpr std::chrono::seconds kLookEvery{1};
// Data that a process sent before it ended is taken to arrive without a pause of this length while
// this rank reads.
constexpr std::chrono::milliseconds kLastWords{200};
// The number of unanswered retransmissions, or probes of a closed window, after which a machine
// counts as gone. They take about 25 s.
constexpr unsigned kMostUnanswered = 7;
static_assert(kInboxBytes >= sizeof(Frame) + kStatusPageBytes);

}  // namespace

Connection::Connection(Endpoint& endpoint, const Clock& clock, net::Stream stream, bool checksum)
    : endpoint_(endpoint),
      clock_(clock),
      stream_(std::move(stream)),
      window_(window_for(net::round_trip_time(socket()))),
      checksum_(checksum),
      inbox_(kInboxBytes) {
  assert(stream_ && window_ >= 2 * kReturnAt && window_ <= kWindow);
}

// Whether the inbox, the payload that is being read and the queue are consistent.
bool Connection::is_sound() const {
  const bool inbox = inbox_begin_ <= inbox_end_ && inbox_end_ <= inbox_.size();
  const bool payload = payload_.left <= payload_.frame.header.length &&
                       (payload_.channel == nullptr || payload_.group != nullptr) &&
                       (!payload_.waits || (payload_.channel != nullptr && payload_.left > 0));
  const bool queue = head_ <= unsent_.size() && (head_ < unsent_.size() || head_written_ == 0);
  return inbox && payload && queue && ended() == !why_ended_.empty();
}

void Connection::add(Group& group) {
  const std::lock_guard lock(mutex_);
  const bool added = groups_.emplace(group.id, &group).second;
  assert(added);
  static_cast<void>(added);
}

void Connection::remove(const Group& group) {
  const std::lock_guard lock(mutex_);
  groups_.erase(group.id);
  assert(is_sound());
  if (last_ == &group) last_ = nullptr;
  if (payload_.group == &group) {
    payload_ = {payload_.frame, nullptr, payload_.left};
    parse();
  }
  for (std::size_t i = head_; i < unsent_.size(); ++i)
    if (unsent_[i].is_message_of(group)) {
      unsent_[i].keep();
      unsent_[i].channel = nullptr;
    }
}

void Connection::revoke(Group& group) {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, channel] : group.channels) channel->receiver.expect(std::nullopt);
  if (payload_.group == &group && payload_.to_program) {
    const std::byte* const begin = payload_.begin;
    place(nullptr);
    if (payload_.begin != nullptr) std::memcpy(payload_.begin, begin, payload_.there());
  }
  try {
    for (std::size_t i = head_; i < unsent_.size(); ++i)
      if (unsent_[i].framed && unsent_[i].is_message_of(group)) unsent_[i].keep();
  } catch (const std::bad_alloc&) {
    // A message that has been begun cannot be left out, so nothing more is written.
    why_unwritable_ = kNoMemory;
    write_queue();
  }
}

bool Connection::has_unsent_of(const Group& group) const {
  if (!has_unsent()) return false;
  const std::lock_guard lock(mutex_);
  if (!why_unwritable_.empty()) return false;
  return stream_.unsent_bytes() > 0 ||
         std::any_of(unsent_.begin() + static_cast<std::ptrdiff_t>(head_), unsent_.end(),
                     [&](const Unsent& unsent) { return unsent.is_of(group); });
}

bool Connection::Unsent::is_of(const Group& group) const {
  assert(framed || bytes >= sizeof(Frame));
  Frame its = frame;
  if (!framed) std::memcpy(&its, data, sizeof its);  // A staged message begins with its frame.
  return its.group == group.id;
}

void Connection::Unsent::keep() {
  if (own != nullptr) return;
  own = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (bytes > 0) std::memcpy(own.get(), data, bytes);
  data = own.get();
}

std::size_t Connection::memory_bytes(const Group& group) const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = sizeof group;
  for (const auto& [number, channel] : group.channels)
    bytes += channel->sender.memory_bytes() + channel->receiver.memory_bytes();
  return bytes;
}

void Connection::poll() {
  if (endpoint_.has_unsent()) endpoint_.flush();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  if (is_armed() && !endpoint_.anybody_asleep()) {
    endpoint_.forget(*this);
    armed_.store(false, std::memory_order_relaxed);
  }
  read(Read::what_is_there);
}

void Connection::arm() {
  const std::lock_guard lock(mutex_);
  if (ended()) return;
  // The socket does not announce bytes that have been read from it already and are decrypted, or
  // wait to be.
  if (stream_.tls() != nullptr) read(Read::until_empty);
  if (is_armed()) return;
  if (!endpoint_.watch(*this))
    return end(fmt::format("it cannot be watched: {}", std::strerror(errno)));
  armed_.store(true, std::memory_order_relaxed);
}

void Connection::pump() {
  const std::lock_guard lock(mutex_);
  read(Read::until_empty);
  write_queue();
}

void Connection::read(Read how) {
  while (!ended()) {
    if (payload_.waits) {
      if (how == Read::what_is_there && ++payload_.passed < kPatience && may_leave_bytes()) return;
      place(nullptr);
      parse();
      continue;
    }
    assert(inbox_begin_ == 0 && (payload_.left == 0 || inbox_end_ == 0));
    const std::size_t straight = payload_.begin != nullptr ? payload_.left : 0;
    const std::size_t room = inbox_.size() - inbox_end_;
    const std::array<iovec, 2> to{piece(payload_.next(), straight),
                                  piece(inbox_.data() + inbox_end_, room)};
    const ssize_t got = stream_.read(std::span(to).subspan(straight == 0 ? 1 : 0));
    if (got < 0 && net::not_now(errno)) return;
    if (got < 0) {
      const End kind = errno == EBADMSG ? End::corrupt : End::lost;
      return end(stream_.describe(errno), kind);
    }
    if (got == 0)
      return end(why_unwritable_.empty() ? "its process has ended or closed the connection"
                                         : why_unwritable_);
    const auto bytes = static_cast<std::size_t>(got);
    assert(bytes <= straight + room);
    received_ += bytes;
    const std::size_t there = std::min(straight, bytes);
    if (there > 0) {
      payload_.left -= there;
      if (payload_.left == 0) finish_payload();
    }
    inbox_end_ += bytes - there;
    parse();
    if (how == Read::what_is_there && bytes < straight + room) return;
  }
}

void Connection::parse() {
  try {
    parse_inbox();
  } catch (const std::bad_alloc&) {
    end(kNoMemory, End::no_memory);
  }
}

void Connection::parse_inbox() {
  while (!ended()) {
    if (payload_.waits) return;  // The inbox stays as it is.
    if (payload_.left > 0) take_from_inbox();
    if (payload_.left > 0 || inbox_end_ - inbox_begin_ < sizeof(Frame)) break;
    Frame frame;
    std::memcpy(&frame, inbox_.data() + inbox_begin_, sizeof frame);
    inbox_begin_ += sizeof frame;
    begin(frame);
  }
  std::memmove(inbox_.data(), inbox_.data() + inbox_begin_, inbox_end_ - inbox_begin_);
  inbox_end_ -= inbox_begin_;
  inbox_begin_ = 0;
  assert(is_sound());
}

void Connection::take_from_inbox() {
  assert(payload_.left > 0 && inbox_begin_ <= inbox_end_ && inbox_end_ <= inbox_.size());
  const std::size_t bytes = std::min(payload_.left, inbox_end_ - inbox_begin_);
  if (payload_.begin != nullptr) std::memcpy(payload_.next(), inbox_.data() + inbox_begin_, bytes);
  inbox_begin_ += bytes;
  payload_.left -= bytes;
  if (payload_.left == 0) finish_payload();
}

Group* Connection::find(std::uint32_t id) {
  if (last_ != nullptr && last_->id == id) return last_;
  const auto found = groups_.find(id);
  if (found != groups_.end()) last_ = found->second;
  return found == groups_.end() ? nullptr : found->second;
}

// Begins a frame. An unknown group belongs to a communicator that has been destroyed here, or that
// has not been made yet (and which requests the peer's status page once it is made).
void Connection::begin(const Frame& frame) {
  if (checksum_ && frame.check != check_of(frame))
    return end("the head of a message does not fit its checksum", End::corrupt);
  Group* const group = find(frame.group);
  payload_ = {frame, nullptr, frame.header.length, group};
  if (group != nullptr && frame.credits > 0) {
    if (frame.channel < 0 || frame.channel > kMostChannel ||
        !group->channel(frame.channel).sender.credit(frame.credits))
      return end("it gives back room that nobody had taken: is it damaged?");
    group->context.wake_sleepers();
  }
  switch (frame.kind) {
    case FrameKind::message:
      if (group != nullptr) return begin_message(frame, *group);
      return;
    case FrameKind::credit:
      if (payload_.left == 0) return;
      break;
    case FrameKind::status_page:
      if (payload_.left != kStatusPageBytes) break;
      if (group != nullptr) payload_.begin = status_page_in_.data();
      return;
    case FrameKind::status_page_request:
      if (payload_.left != 0) break;
      if (group != nullptr) send_status_page(*group);
      return;
  }
  end("it sent what makes no sense: does it run another version, is it damaged?");
}

void Connection::begin_message(const Frame& frame, Group& group) {
  if (frame.channel < 0 || frame.channel > kMostChannel ||
      frame.header.length > group.context.max_message_bytes)
    return end(fmt::format("it sent a message of {} bytes on channel {}, which cannot be",
                           frame.header.length, frame.channel));
  payload_.channel = &group.channel(frame.channel).receiver;
  Header header = frame.header;
  if (checksum_) header.crc = 0;  // This transport's checksum is for itself alone.
  if (!payload_.channel->announce(header))
    return end("it sent more messages than there was room for");
  const std::optional<Memory> expected = payload_.channel->take_expected();
  if (payload_.left > inbox_end_ - inbox_begin_ && !expected) {
    payload_.waits = true;
    return group.context.wake_sleepers();
  }
  place(expected ? expected->address : nullptr);
}

// Sets where the announced payload goes: to `to`, or to memory of the channel where `to` is null.
void Connection::place(std::byte* to) {
  assert(payload_.channel != nullptr && !ended());
  payload_.waits = false;
  payload_.to_program = to != nullptr;
  try {
    payload_.begin = to != nullptr ? to : payload_.channel->own_payload();
  } catch (const Error& error) {
    return end(error.what(), End::no_memory);
  }
  if (payload_.left == 0) finish_payload();
}

void Connection::expect(TcpRecvChannel& channel, const Memory& place) {
  const std::lock_guard lock(mutex_);
  // Another thread may have read the announcement meanwhile; the caller will find it.
  if (channel.has_message()) return;
  channel.expect(place);
}

void Connection::get(TcpRecvChannel& channel, const Memory& place) {
  if (endpoint_.has_unsent()) endpoint_.flush();
  const std::lock_guard lock(mutex_);
  if (channel.payload() != nullptr || ended()) return;
  if (payload_.waits && payload_.channel == &channel) {
    assert(place.address == nullptr || payload_.left <= place.bytes);
    this->place(place.address);
    parse();
  }
  if (channel.payload() == nullptr) read(Read::what_is_there);
}

void Connection::finish_payload() {
  assert(payload_.left == 0 && !payload_.waits);
  assert(payload_.group == nullptr || payload_.channel != nullptr ||
         payload_.frame.kind == FrameKind::status_page);
  const Header& header = payload_.frame.header;
  if (checksum_ && payload_.begin != nullptr && header.crc != crc32c(payload_.begin, header.length))
    return end(fmt::format("{} bytes do not fit the checksum that came with them", header.length),
               End::corrupt);
  if (payload_.group != nullptr) {
    if (payload_.channel != nullptr) {
      payload_.channel->complete(payload_.begin);
    } else {
      payload_.group->peer_page.receive(status_page_in_, clock_.now());
    }
    payload_.group->context.wake_sleepers();
  }
  payload_ = {};
}

void Connection::notify_all_groups() const {
  for (const auto& [id, group] : groups_) group->context.wake_sleepers();
}

// Ends the connection. Unless it is lost, this rank still writes, so that its status page tells the
// peer why.
void Connection::end(std::string why, End how) {
  assert(!ended() && !why.empty() && how != End::none);
  why_ended_ = std::move(why);
  if (how == End::lost) why_unwritable_ = why_ended_;
  inbox_begin_ = inbox_end_ = 0;
  payload_ = {};
  end_.store(how, std::memory_order_release);
  write_queue();  // drops the queue where nothing can be written
  if (is_armed()) endpoint_.forget(*this);
  armed_.store(true,
               std::memory_order_relaxed);  // It stays so, since there is nothing more to be read.
  notify_all_groups();
}

void Connection::look_whether_alive() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || ended()) return;
  const TimePoint now = clock_.now();
  if (now < looked_at_ + kLookEvery) return;
  looked_at_ = now;
  listen_for_silence(now);
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (getsockopt(socket(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
      std::max<unsigned>(info.tcpi_retransmits, info.tcpi_probes) >= kMostUnanswered)
    end("its machine does not answer any more");
}

void Connection::listen_for_silence(TimePoint now) noexcept {
  if (received_then_ == received_) return;
  received_then_ = received_;
  quiet_since_ = now;
}

// What the process has sent may still lie in its machine for want of room in this one: reading
// makes room, and more arrives. So silence is that nothing comes while this rank reads.
void Connection::end_with_process() {
  if (ended()) return;
  const std::lock_guard lock(mutex_);
  read(Read::until_empty);
  const TimePoint now = clock_.now();
  listen_for_silence(now);
  if (ended() || now < quiet_since_ + kLastWords) return;
  end("its process has ended; one that it forked keeps the connection open");
}

// Whether bytes that have arrived may wait for a thread that knows their destination. With TLS they
// may not while a thread sleeps, since only bytes in the socket wake it.
bool Connection::may_leave_bytes() const {
  return stream_.tls() == nullptr || !endpoint_.anybody_asleep();
}

void Connection::say_goodbye() noexcept {
  if (stream_.tls() != nullptr) stream_.tls()->send_close_notify();
  shutdown(socket(), SHUT_WR);
}

}  // namespace tutti::tcp
