// What a connection writes, and the queue of what its socket does not accept.
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include "net/tcp_socket.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/endpoint.h"

namespace tutti::tcp {
namespace {

constexpr std::size_t kMostPieces = 64;  // the most pieces of one write
static_assert(kMostPieces >= 2 && kMostPieces <= IOV_MAX, "a frame and its payload go together");

}  // namespace

bool Connection::flush() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  write_queue();
  return all_written() || !why_unwritable_.empty();
}

void Connection::put(Frame frame) {
  const std::lock_guard lock(mutex_);
  seal(frame, nullptr);
  Unsent unsent;
  unsent.frame = frame;
  send(std::move(unsent));
}

void Connection::put_message(std::span<const std::byte> bytes, TcpSendChannel& channel) {
  const std::lock_guard lock(mutex_);
  Unsent unsent;
  unsent.data = bytes.data();
  unsent.bytes = bytes.size();
  unsent.channel = &channel;
  unsent.framed = false;
  send(std::move(unsent));
}

void Connection::put_zero_copy(const Frame& frame, const std::byte* data, TcpSendChannel& channel) {
  const std::lock_guard lock(mutex_);
  Unsent unsent;
  unsent.frame = frame;
  unsent.data = data;
  unsent.bytes = frame.header.length;
  unsent.channel = &channel;
  send(std::move(unsent));
}

void Connection::put_status_page(const Group& group) {
  const std::lock_guard lock(mutex_);
  send_status_page(group);
}

void Connection::send_status_page(const Group& group) {
  const StatusPageBytes status_page = read_status_page(*group.context.status_page);
  Unsent unsent;
  unsent.frame.kind = FrameKind::status_page;
  unsent.frame.group = group.id;
  unsent.frame.header.length = static_cast<std::uint32_t>(status_page.size());
  seal(unsent.frame, status_page.data());
  unsent.data = status_page.data();
  unsent.bytes = status_page.size();
  send(std::move(unsent), true);
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
    seal(unsent.frame, nullptr);
    send(std::move(unsent));
  }
  return page;
}

// Writes an entry at once, or queues what the socket does not accept behind the rest. Where
// `passing`, the data is valid only during this call and is copied when it is queued.
void Connection::send(Unsent unsent, bool passing) {
  assert(unsent.framed || unsent.bytes >= sizeof(Frame));
  assert(unsent.data != nullptr || unsent.bytes == 0);
  const bool first = head_ == unsent_.size();
  if (first && why_unwritable_.empty()) {
    std::array<iovec, 2> pieces{piece(&unsent.frame, sizeof unsent.frame),
                                piece(unsent.data, unsent.bytes)};
    const std::size_t written =
        write_now(std::span(pieces).subspan(unsent.framed ? 0 : 1, unsent.framed ? 2 : 1));
    assert(written <= unsent.size());
    if (written == unsent.size()) {
      if (unsent.channel != nullptr) unsent.channel->wrote_one();
      if (stream_.tls() != nullptr) set_unsent();
      return;
    }
    head_written_ = written;
  }
  try {
    if (passing) unsent.keep();
    unsent_.push_back(std::move(unsent));
  } catch (const std::bad_alloc&) {
    return cut_short(unsent);
  }
  if (first && why_unwritable_.empty())
    set_unsent();
  else
    write_queue();
}

// Ends the connection where there is no memory to queue `unsent`, of which a part may have been
// written.
void Connection::cut_short(const Unsent& unsent) {
  if (head_ == unsent_.size()) head_written_ = 0;
  why_unwritable_ = kNoMemory;
  write_queue();
  if (!ended()) end(kNoMemory, End::no_memory);
  if (unsent.channel != nullptr) unsent.channel->wrote_one();
}

// Writes and returns how many bytes the kernel accepted.
std::size_t Connection::write_now(std::span<const iovec> pieces) {
  const ssize_t put = stream_.write(pieces);
  if (put >= 0) return static_cast<std::size_t>(put);
  if (!net::not_now(errno))
    why_unwritable_ = stream_.describe(errno);  // Bytes that arrived before are still read.
  return 0;
}

void Connection::write_queue() {
  const std::size_t queued = unsent_.size() - head_;
  const bool had_unsent = has_unsent();
  if (why_unwritable_.empty() && !stream_.flush()) why_unwritable_ = stream_.describe(errno);
  while (head_ < unsent_.size() && why_unwritable_.empty()) {
    std::array<iovec, kMostPieces> pieces;
    std::size_t count = 0, asked = 0, skip = head_written_;
    const auto add = [&](const void* data, std::size_t bytes) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes == skipped) return;
      pieces[count++] = piece(static_cast<const std::byte*>(data) + skipped, bytes - skipped);
      asked += bytes - skipped;
    };
    for (std::size_t i = head_; i < unsent_.size() && count + 2 <= kMostPieces; ++i) {
      if (unsent_[i].framed) add(&unsent_[i].frame, sizeof(Frame));
      add(unsent_[i].data, unsent_[i].bytes);
    }
    assert(count > 0 && asked > 0);
    const std::size_t written = write_now(std::span(pieces).first(count));
    assert(written <= asked);
    drop_written(written);
    if (written < asked) break;
  }
  if (!why_unwritable_.empty())
    while (head_ < unsent_.size()) drop_written(unsent_[head_].size() - head_written_);
  set_unsent();
  // A thread that sleeps until its messages have left may not be the one that writes them.
  if (unsent_.size() - head_ < queued || has_unsent() != had_unsent) notify_all_groups();
}

void Connection::drop_written(std::size_t bytes) {
  assert(is_sound());
  head_written_ += bytes;
  while (head_ < unsent_.size() && head_written_ >= unsent_[head_].size()) {
    Unsent& gone = unsent_[head_++];
    head_written_ -= gone.size();
    if (gone.channel != nullptr) gone.channel->wrote_one();
    gone.own.reset();
  }
  assert(head_ <= unsent_.size() && (head_ < unsent_.size() || head_written_ == 0));
  if (head_ == unsent_.size()) {
    unsent_.clear();
    head_ = 0;
  } else if (head_ >= kMostPieces) {
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
}

void Connection::set_unsent() {
  const bool unsent = !all_written() && why_unwritable_.empty();
  if (unsent == has_unsent()) return;
  has_unsent_.store(unsent, std::memory_order_relaxed);
  endpoint_.count_unsent(unsent ? 1 : -1);
}

}  // namespace tutti::tcp
