#include "transport/queue_pair/control.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/bytes.h"
#include "net/tcp_socket.h"

namespace tutti::qp {
namespace {

constexpr std::size_t kMostTextBytes = std::max(kMostAddressBytes, kSlotBytes);

}  // namespace

void Control::say(Note note, std::string_view text) {
  text = text.substr(0, kMostTextBytes);
  note.text_bytes = static_cast<std::uint32_t>(text.size());
  if (written_ > out_.size() / 2) out_.erase(0, std::exchange(written_, 0));
  out_.append(bytes_of(note)).append(text);
  flush();
}

void Control::flush() noexcept {
  while (unwritten() > 0) {
    const iovec rest{out_.data() + written_, unwritten()};
    const ssize_t sent = stream_.write({&rest, 1});
    if (sent < 0 && net::not_now(errno)) return;
    if (sent < 0) written_ = out_.size();  // read() finds the end.
    if (sent > 0) written_ += static_cast<std::size_t>(sent);
  }
  out_.clear();
  written_ = 0;
}

bool Control::is_flushed() const noexcept {
  int left = 0;
  return unwritten() == 0 && (ioctl(fd(), SIOCOUTQ, &left) != 0 || left == 0);
}

// Reads until the note has `bytes`. Returns false where they have not all arrived.
bool Control::read_until(std::size_t bytes) {
  if (in_.size() < bytes) in_.resize(bytes);
  while (there_ < bytes) {
    const iovec to{in_.data() + there_, bytes - there_};
    const ssize_t got = stream_.read({&to, 1});
    if (got < 0 && net::not_now(errno)) return false;
    if (got <= 0) {
      end_ = got == 0 || errno == ECONNRESET ? End::closed : End::silent;
      return false;
    }
    there_ += static_cast<std::size_t>(got);
  }
  return true;
}

std::optional<Control::Said> Control::read() {
  if (end_ != End::none || !read_until(sizeof(Note))) return std::nullopt;
  Said said;
  std::memcpy(&said.note, in_.data(), sizeof said.note);
  const Note& note = said.note;
  if (note.magic != Note::kMagic || note.text_bytes > kMostTextBytes) {
    end_ = End::nonsense;
    return std::nullopt;
  }
  if (!read_until(sizeof note + note.text_bytes)) return std::nullopt;
  there_ = 0;
  said.text.assign(in_.data() + sizeof note, note.text_bytes);
  return said;
}

bool ControlPair::send(std::uint32_t id, const Piece& piece) noexcept {
  Note note;
  note.step = Note::Step::frame;
  note.path = 0;
  try {
    finished_.push_back({Completion::What::sent, id, piece.bytes, nullptr});
    control_.say(note, {reinterpret_cast<const char*>(piece.data), piece.bytes});
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool ControlPair::receive(std::uint32_t id, const Piece& piece) noexcept {
  try {
    receives_.push_back({id, piece});
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

std::size_t ControlPair::poll(std::span<Completion> completions) noexcept {
  const std::size_t count = std::min(completions.size(), finished_.size());
  std::copy_n(finished_.begin(), count, completions.begin());
  finished_.erase(finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

bool ControlPair::take(std::string_view frame) {
  if (receives_.empty() || frame.size() > kSlotBytes) return false;
  const Receive next = receives_.front();
  receives_.pop_front();
  std::memcpy(next.piece.data, frame.data(), frame.size());
  finished_.push_back(
      {Completion::What::received, next.id, static_cast<std::uint32_t>(frame.size()), nullptr});
  return true;
}

}  // namespace tutti::qp
