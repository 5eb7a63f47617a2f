// Sees to the paths of a connection: takes those out that fail, and makes others.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include <tutti/error.hpp>

#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/endpoint.h"

namespace tutti::qp {
namespace {

using std::chrono::seconds;
using PathState = Path::State;

// Devices give up after 4 s, some after four times as long as they are told. A port that is down is
// asked for after the first time.
constexpr seconds kLookAfter{2}, kSilence{25};
// A device that has been told to stop ends its requests at once.
constexpr seconds kDrainLimit{5};
// A path on which nothing arrives for so long does not work. A peer that says nothing is waited for
// without end: it may be frozen, and finds one proposal then, not many that are given up.
constexpr seconds kPathProbeLimit{10};
// The next path is proposed after a second, and later where that was in vain.
constexpr seconds kProposeAfter{1}, kProposeAtLast{60};

}  // namespace

void Connection::add_control(Control control, int rank, bool leads, std::uint32_t peer_ports) {
  const std::lock_guard lock(mutex_);
  assert(!control_);
  control_.emplace(std::move(control));
  rank_ = rank;
  leads_ = leads;
  peer_ports_ = peer_ports;
  if (!needs_paths_) choose_paths();
}

std::size_t Connection::slot_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& path : paths_)
    if (path->number != Path::kControl) bytes += path->slot_bytes();
  return bytes;
}

Path* Connection::find_path(std::uint32_t number) noexcept {
  for (const auto& path : paths_)
    if (path->number == number) return path.get();
  return nullptr;
}

std::string Connection::names_of_paths() const {
  std::string names;
  for (const auto& path : paths_)
    if (path->is_live()) names += (names.empty() ? "" : ", ") + path->where;
  return names;
}

// Makes a path over one of this rank's ports.
Path& Connection::make_path(std::uint32_t number, std::uint32_t port) {
  Device& device = endpoint_.device(port);
  const SlotCounts counts = slots_of_path(wanted_paths_);
  std::unique_ptr<QueuePair> pair =
      device.make({counts.sends, counts.to_receive(), kMostReads}, this);
  paths_.push_back(std::make_unique<Path>(number, &device, std::move(pair), counts));
  return *paths_.back();
}

// Takes a path out, about which the peer is told. Its device is still asked for what has been done.
// Where no other path can be used, the connection ends.
void Connection::fail(Path& path, std::string why) {
  if (broken_ || path.state == PathState::failed) return;
  if (path.number == Path::kControl) return end(kNoMemory);
  if (!control_ || !changes_paths_) return end_with_device(why);
  path.was_live = path.is_live();
  path.why_failed = std::move(why);
  path.state = PathState::failed;
  path.until.reset();
  path.pair().stop();
  move_held();
  say(Note::Step::lost, path, path.why_failed);
  ++vain_tries_;
  propose_at_ =
      clock_.now() + std::min(kProposeAfter * (1 << std::min(vain_tries_, 8u)) / 2, kProposeAtLast);
  if (path.was_live) choose_paths();
  notify_all_groups();
}

void Connection::end_with_device(std::string_view why) {
  end(fmt::format("the {} connection to it has failed: {}", name_, why));
}

// Says that a path is gone, unless the peer's end is the reason.
void Connection::log_failure(const Path& path) const {
  if (quiet_since_) return;
  if (path.was_live)
    endpoint_.log(
        LogLevel::warn,
        fmt::format("the path to rank {} over {} has failed: {}; it is reached over {} now", rank_,
                    path.where, path.why_failed, names_of_paths()));
  else
    log_vain_try(path.where, path.why_failed);
}

// Where there is no other path, the two ranks are slower than they could be.
void Connection::log_vain_try(const std::string& port, std::string_view why) const {
  endpoint_.log(by_control_live_ && vain_tries_ <= 1 ? LogLevel::warn : LogLevel::info,
                fmt::format("no path to rank {} over {} is made: {}{}", rank_, port, why,
                            by_control_live_ ? "; it is reached over TCP" : ""));
}

// The frame in a slot may not have arrived, so it is sent again.
void Connection::doubt(Path& path, std::uint32_t slot) {
  const std::span<const std::byte> sent = path.sent(slot);
  InDoubt again;
  std::memcpy(&again.frame, sent.data(), sizeof again.frame);
  path.free_slot(slot);
  if (broken_ || again.frame.kind == FrameKind::room) return;
  try {
    const auto payload = sent.subspan(sizeof again.frame);
    again.payload.assign(payload.begin(), payload.end());
    doubts_.push_back(std::move(again));
  } catch (const std::bad_alloc&) {
    end(kNoMemory);
  }
}

// Where no device's path is left, frames go over the control connection.
void Connection::choose_paths() {
  const bool any = std::any_of(paths_.begin(), paths_.end(), [](const auto& path) {
    return path->number != Path::kControl && path->is_live();
  });
  Path* last = find_path(Path::kControl);
  if (last == nullptr && any) return;
  try {
    if (last == nullptr) last = &add_control_path();
    last->state = any ? PathState::idle : PathState::live;
    by_control_live_ = !any;
  } catch (const std::exception&) {
    end(kNoMemory);
  }
}

Path& Connection::add_control_path() {
  auto pair = std::make_unique<ControlPair>(*control_);
  ControlPair* const its = pair.get();
  auto path = std::make_unique<Path>(Path::kControl, nullptr, std::move(pair), SlotCounts());
  path->open(SlotCounts());
  path->state = PathState::idle;
  path->heard = true;
  paths_.push_back(std::move(path));
  by_control_ = its;
  return *paths_.back();
}

void Connection::tend_paths(TimePoint now) {
  for (std::size_t i = 0; i < paths_.size() && !broken_;) {
    if (tend(*paths_[i], now)) {
      ++i;
      continue;
    }
    log_failure(*paths_[i]);
    paths_[i]->destroy_pair();
    registrations_->forget(*this, paths_[i]->number);
    paths_.erase(paths_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (broken_ || !control_ || !changes_paths_) return;
  if (control_->unwritten() > 0) control_->flush();
  watch_control();
  set_unsent();
  if (leads_ && needs_paths_ && now >= propose_at_) propose_path(now);
}

// Returns false where the path has failed, and its device has ended all requests.
bool Connection::tend(Path& path, TimePoint now) {
  switch (path.state) {
    case PathState::failed:
      if (path.is_drained()) return false;
      if (!path.until) path.until = now + kDrainLimit;
      if (now >= *path.until) end(fmt::format("the {} device does not end its requests", name_));
      return true;
    case PathState::live: {
      give_room_back(path);
      const auto silence = path.silence(now);
      if (silence >= kSilence)
        fail(path, fmt::format("its {} device has acknowledged nothing for {} s", name_,
                               kSilence.count()));
      else if (silence >= kLookAfter && !path.device->is_up())
        fail(path, "the port is down");
      return true;
    }
    case PathState::idle: return true;
    case PathState::introduced:
      if (path.heard && !path.said_heard) {
        path.said_heard = true;
        say(Note::Step::heard, path, {});
        if (path.peer_has_heard) go_live(path);
      }
      if (path.until && now >= *path.until) fail(path, "nothing arrives between the two devices");
      return true;
  }
  return true;
}

// Has the first paths made, which the lower rank proposes.
void Connection::need_paths() {
  if (needs_paths_ || broken_) return;
  needs_paths_ = true;
  if (leads_) return;
  Note note;
  note.step = Note::Step::wanted;
  try {
    control_->say(note, {});
  } catch (const std::bad_alloc&) {
    return end(kNoMemory);
  }
  watch_control();
}

// Proposes a path where there are fewer than wanted, over the next pair of ports of the two ranks
// that no path uses.
void Connection::propose_path(TimePoint now) {
  const auto devices = static_cast<std::uint32_t>(paths_.size()) - (by_control_ != nullptr ? 1 : 0);
  if (devices >= wanted_paths_) return;
  const std::uint32_t own_ports = endpoint_.ports(), pairs = own_ports * peer_ports_;
  std::uint32_t port = 0, peer_port = 0;
  for (std::uint32_t tried = 0; tried < pairs; ++tried) {
    const std::uint32_t next = next_ports_++ % pairs;
    port = next % own_ports;
    peer_port = (next % own_ports + next / own_ports) % peer_ports_;
    const bool used = std::any_of(paths_.begin(), paths_.end(), [&](const auto& path) {
      return path->device == &endpoint_.device(port) && path->peer_port == peer_port;
    });
    if (!used) break;
  }
  try {
    Path& path = make_path(++last_path_, port);
    path.peer_port = peer_port;
    say(Note::Step::address, path, path.pair().address());
  } catch (const std::exception& error) {
    propose_at_ = now + kProposeAtLast;
    ++vain_tries_;
    log_vain_try(endpoint_.device(port).port(), error.what());
  }
}

void Connection::say(Note::Step step, const Path& path, std::string_view text) {
  Note note;
  note.step = step;
  note.path = path.number;
  note.port = static_cast<std::uint16_t>(path.peer_port);
  note.sequence = sequence_.next();
  try {
    control_->say(note, text);
  } catch (const std::bad_alloc&) {
    return end(kNoMemory);
  }
  watch_control();
}

// The endpoint wakes a thread that sleeps when the socket takes more.
void Connection::watch_control() {
  const bool out = control_->unwritten() > 0;
  if (out == std::exchange(watches_out_, out)) return;
  endpoint_.watch(*this, control_->fd(), out);
}

void Connection::read_control() {
  const std::lock_guard lock(mutex_);
  take_notes();
}

void Connection::take_notes() {
  try {
    while (!broken_)
      if (const std::optional<Control::Said> said = control_->read())
        take_note(*said);
      else
        break;
  } catch (const std::bad_alloc&) {
    return end(kNoMemory);
  }
  if (broken_ || control_->end() == Control::End::none || quiet_since_) return;
  why_peer_ended_ = control_->end() == Control::End::nonsense ? kNonsense
                    : control_->end() == Control::End::closed
                        ? "its process has ended or closed the connection"
                        : "its machine does not answer any more";
  quiet_since_ = clock_.now();
}

void Connection::take_note(const Control::Said& said) {
  const Note& note = said.note;
  if (!changes_paths_) return end(kNonsense);
  if (note.step == Note::Step::lost) return take_loss(said);
  if (note.step == Note::Step::address) return take_address(said);
  if (note.step == Note::Step::wanted) {
    if (!leads_) return end(kNonsense);
    needs_paths_ = true;
    return;
  }
  if (note.step == Note::Step::frame) {
    if (by_control_ == nullptr) add_control_path();
    if (!by_control_->take(said.text)) end(kNonsense);
    return;
  }
  Path* const path = find_path(note.path);
  if (path == nullptr || path->state == PathState::failed) return;  // This end has said so.
  if (path->state != PathState::introduced) return end(kNonsense);
  if (note.step == Note::Step::connected)
    return leads_ || path->tried ? end(kNonsense) : try_out(*path);
  if (note.step != Note::Step::heard || path->peer_has_heard) return end(kNonsense);
  path->peer_has_heard = true;
  if (path->said_heard) go_live(*path);
}

// The peer uses a path no more. What it had sent over that may come again over others, for which
// slots have to be ready.
void Connection::take_loss(const Control::Said& said) {
  const Note& note = said.note;
  const int distance = ahead(note.sequence, expected_);
  if (distance > static_cast<int>(kMostAhead) || note.path == Path::kControl ||
      note.path > last_path_)
    return end(kNonsense);
  if (distance > 0 && (!again_until_ || ahead(note.sequence, *again_until_) > 0))
    again_until_ = note.sequence;
  move_held();
  if (Path* const path = find_path(note.path)) fail(*path, "the other end says: " + said.text);
  for (std::size_t i = 0; i < paths_.size(); ++i)
    give_room_back(*paths_[i]);  // It may fail, and another one be added.
}

// One end proposes a path, and the other answers with the address of its own queue pair.
void Connection::take_address(const Control::Said& said) {
  const Note& note = said.note;
  if (leads_) {
    Path* const path = find_path(note.path);
    if (path == nullptr || path->state == PathState::failed) return;
    if (path->state != PathState::introduced || path->tried) return end(kNonsense);
    return connect(*path, said.text);
  }
  if (note.path <= last_path_ || note.port >= endpoint_.ports() || paths_.size() > 2 * kMostPaths)
    return end(kNonsense);
  last_path_ = note.path;
  needs_paths_ = true;
  try {
    connect(make_path(note.path, note.port), said.text);
  } catch (const Error& error) {
    Note no;
    no.step = Note::Step::lost;
    no.path = note.path;
    no.sequence = sequence_.next();
    control_->say(no, error.what());
    watch_control();
  }
}

void Connection::connect(Path& path, const std::string& address) {
  try {
    path.pair().connect(address);
    path.open(path.counts());
  } catch (const Error& error) {
    return fail(path, error.what());
  }
  if (!leads_) return say(Note::Step::address, path, path.pair().address());
  say(Note::Step::connected, path, {});
  try_out(path);
}

void Connection::try_out(Path& path) {
  path.until = clock_.now() + kPathProbeLimit;
  path.tried = true;
  send_room(path);
}

void Connection::go_live(Path& path) {
  path.state = PathState::live;
  path.until.reset();
  vain_tries_ = 0;
  choose_paths();
  endpoint_.log(LogLevel::info,
                fmt::format("rank {} is reached over {} now", rank_, names_of_paths()));
  send_queue();
}

}  // namespace tutti::qp
