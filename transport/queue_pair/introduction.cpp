#include "transport/queue_pair/introduction.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cassert>
#include <chrono>

#include <tutti/error.hpp>

#include "net/connection.h"
#include "transport/queue_pair/endpoint.h"

namespace tutti::qp {
namespace {

// A path on which nothing arrives for so long does not work. Devices repeat for 4 s.
constexpr std::chrono::seconds kProbeLimit{10};

// Returns how many paths the two ranks make: the fewer for which they are set, or one for each port
// of the rank that has more of them.
std::uint32_t agreed_paths(const Endpoint& own, const Note& peer) {
  const std::uint32_t set = own.paths(), its = peer.paths;
  if (set != 0 || its != 0) return set == 0 ? its : its == 0 ? set : std::min(set, its);
  return std::min(std::max<std::uint32_t>(own.ports(), peer.port), kMostPathsUnasked);
}

}  // namespace

Introduction::Introduction(std::unique_ptr<Connection> connection, std::string why_none,
                           net::Stream control)
    : connection_(std::move(connection)),
      why_not_(std::move(why_none)),
      control_(std::move(control)) {
  assert((connection_ != nullptr) == why_not_.empty());
  const bool has_path = connection_ != nullptr && connection_->has_path();
  say(Note::Step::address, has_path ? connection_->queue_pair().address() : why_not_,
      connection_ == nullptr);
}

void Introduction::say(Note::Step step, const std::string& text, bool failed) {
  Note note;
  note.step = step;
  note.failed = failed ? 1 : 0;
  note.path = Path::kFirst;
  if (connection_ != nullptr) {
    if (!connection_->has_path()) note.path = Path::kControl;
    note.port = static_cast<std::uint16_t>(connection_->endpoint().ports());
    note.paths = static_cast<std::uint16_t>(connection_->endpoint().paths());
  }
  control_.say(note, text);
}

std::optional<Control::Said> Introduction::read() {
  std::optional<Control::Said> said = control_.read();
  if (control_.end() == Control::End::closed || control_.end() == Control::End::silent)
    throw Error(ErrorKind::peer_lost, "it has closed the connection while the two connected");
  const bool needs_path = connection_ != nullptr && connection_->has_path() &&
                          connection_->queue_pair().needs_peer_process();
  if (control_.end() == Control::End::nonsense ||
      (said && (said->note.step != next_ || said->note.slot_bytes != kSlotBytes ||
                said->note.slots != kReceiveSlots || said->note.path > Path::kFirst ||
                (needs_path && said->note.path == Path::kControl) || said->note.port == 0 ||
                said->note.paths > kMostPaths)))
    throw Error(ErrorKind::mismatch,
                "it does not connect its devices as this rank does: do all ranks run the same "
                "version?");
  return said;
}

std::unique_ptr<Connection> Introduction::take_connection(int rank, bool leads) {
  assert(done_ && why_not_.empty());
  connection_->add_control(std::move(control_), rank, leads, peer_ports_);
  return std::move(connection_);
}

void Introduction::advance(TimePoint now) {
  if (helps_peer()) connection_->pump();
  if (probing_until_) look_for_probe(now);
  while (!done_ && !probing_until_) {
    const std::optional<Control::Said> said = read();
    if (!said) return;
    take(*said, now);
    if (probing_until_) look_for_probe(now);
  }
}

// Takes the peer's note of a step. Each end has sent its own before, so that either knows of both
// whether the step has failed.
void Introduction::take(const Control::Said& said, TimePoint now) {
  const auto& [note, text] = said;
  if (note.failed != 0 && why_not_.empty()) why_not_ = "the other end says: " + text;
  if (!why_not_.empty()) {
    connection_.reset();
    done_ = true;
    return;
  }
  switch (note.step) {
    case Note::Step::address:
      peer_ports_ = note.port;
      if (!connection_->has_path() || note.path == Path::kControl) {
        connection_->postpone(agreed_paths(connection_->endpoint(), note));
        done_ = true;
        return;
      }
      try {
        connection_->open(agreed_paths(connection_->endpoint(), note));
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
    case Note::Step::heard:
    case Note::Step::lost:
    case Note::Step::frame:
    case Note::Step::wanted: done_ = true;  // read() lets only the next step pass.
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
  CheckTimes check_times(context.size, context.clock->now());
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
                              "the deadline: {}",
                              context.rank, missing));
    if (check_times.due(now) && context.check) context.check();
    ::poll(fds.data(), fds.size(), probing ? 1 : std::min(net::poll_milliseconds(deadline), 100));
  }
}

}  // namespace tutti::qp
