#include "transport/queue_pair/introduction.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "net/connection.h"
#include "net/tcp_socket.h"

namespace tutti::qp {
namespace {

// A path on which nothing arrives for so long does not work. Devices repeat for 4 s.
constexpr std::chrono::seconds kProbeLimit{10}, kCheckAgain{1};

}  // namespace

Introduction::Introduction(std::unique_ptr<Connection> connection, std::string why_none,
                           net::Stream control)
    : connection_(std::move(connection)),
      why_not_(std::move(why_none)),
      control_(std::move(control)) {
  assert((connection_ != nullptr) == why_not_.empty() && control_);
  if (connection_ != nullptr)
    say(Note::Step::address, connection_->queue_pair().address(), false);
  else
    say(Note::Step::address, why_not_, true);
}

// A new socket has room for the few notes.
void Introduction::say(Note::Step step, const std::string& text, bool failed) {
  Note note;
  note.step = step;
  note.failed = failed ? 1 : 0;
  const std::size_t text_bytes = std::min(text.size(), kMostAddressBytes);
  note.text_bytes = static_cast<std::uint32_t>(text_bytes);
  std::string bytes(bytes_of(note));
  bytes.append(text, 0, text_bytes);
  const iovec written{bytes.data(), bytes.size()};
  if (control_.write({&written, 1}) != static_cast<ssize_t>(bytes.size()))
    throw Error(ErrorKind::peer_lost, "it has closed the connection while the two connected");
}

// Reads until the note has `bytes`. Returns false where they have not all arrived.
bool Introduction::read_until(std::size_t bytes) {
  while (there_ < bytes) {
    const iovec to{bytes_.data() + there_, bytes - there_};
    const ssize_t got = control_.read({&to, 1});
    if (got < 0 && net::not_now(errno)) return false;
    if (got <= 0)
      throw Error(ErrorKind::peer_lost, "it has closed the connection while the two connected");
    there_ += static_cast<std::size_t>(got);
  }
  return true;
}

std::optional<Introduction::Said> Introduction::read() {
  if (!read_until(sizeof(Note))) return std::nullopt;
  Said said;
  std::memcpy(&said.note, bytes_.data(), sizeof said.note);
  const Note& note = said.note;
  if (note.magic != Note::kMagic || note.step != next_ || note.slot_bytes != kSlotBytes ||
      note.slots != kReceiveSlots || note.text_bytes > kMostAddressBytes)
    throw Error(ErrorKind::mismatch,
                "it does not connect its devices as this rank does: do all ranks run the same "
                "version?");
  if (!read_until(sizeof note + note.text_bytes)) return std::nullopt;
  there_ = 0;
  said.text.assign(bytes_.data() + sizeof note, note.text_bytes);
  return said;
}

void Introduction::advance(TimePoint now) {
  if (helps_peer()) connection_->pump();
  if (probing_until_) look_for_probe(now);
  while (!done_ && !probing_until_) {
    const std::optional<Said> said = read();
    if (!said) return;
    take(*said, now);
    if (probing_until_) look_for_probe(now);
  }
}

// Takes the peer's note of a step. Each end has sent its own before, so that either knows of both
// whether the step has failed.
void Introduction::take(const Said& said, TimePoint now) {
  const auto& [note, text] = said;
  if (note.failed != 0 && why_not_.empty()) why_not_ = "the other end says: " + text;
  if (!why_not_.empty()) {
    connection_.reset();
    done_ = true;
    return;
  }
  switch (note.step) {
    case Note::Step::address:
      try {
        connection_->open();
        connection_->queue_pair().connect(text);
      } catch (const Error& error) {
        why_not_ = error.what();
      }
      next_ = Note::Step::connected;
      return say(Note::Step::connected, why_not_, !why_not_.empty());
    case Note::Step::connected:
      connection_->probe();
      probing_until_ = now + kProbeLimit;
      next_ = Note::Step::heard;
      return;
    case Note::Step::heard: done_ = true;
  }
}

void Introduction::look_for_probe(TimePoint now) {
  connection_->pump();
  if (!connection_->has_heard()) {
    if (connection_->how_ended() != Connection::End::none)
      why_not_ = connection_->why_ended();
    else if (now >= *probing_until_)
      why_not_ =
          "nothing arrives between the two devices: are they on one network, and does a "
          "firewall let their packets (of RoCE: UDP port 4791) through?";
    else
      return;
  }
  probing_until_.reset();
  say(Note::Step::heard, why_not_, !why_not_.empty());
}

void introduce(std::vector<std::optional<Introduction>>& peers, const TransportContext& context,
               TimePoint deadline) {
  TimePoint check_at = context.clock->now() + kCheckAgain;
  for (;;) {
    std::vector<pollfd> fds;
    bool probing = false;
    std::string missing;
    const TimePoint now = context.clock->now();
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      if (!peers[rank] || peers[rank]->is_done()) continue;
      try {
        peers[rank]->advance(now);
      } catch (const Error& error) {
        throw Error(error.kind(),
                    fmt::format("rank {}: rank {}: {}", context.rank, rank, error.what()));
      }
      if (peers[rank]->is_done()) continue;
      probing = probing || peers[rank]->is_probing() || peers[rank]->helps_peer();
      // While it probes it reads nothing, although the peer's next note may be there.
      const short events = peers[rank]->is_probing() ? 0 : POLLIN;
      fds.push_back({peers[rank]->fd(), events, 0});
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    if (fds.empty()) return;
    if (now >= deadline)
      throw Error(ErrorKind::timeout,
                  fmt::format("rank {}: ranks that have not connected their devices before "
                              "the start-up deadline: {}",
                              context.rank, missing));
    if (now >= check_at && context.check) {
      context.check();
      check_at = now + kCheckAgain;
    }
    ::poll(fds.data(), fds.size(), probing ? 1 : std::min(net::poll_milliseconds(deadline), 100));
  }
}

}  // namespace tutti::qp
