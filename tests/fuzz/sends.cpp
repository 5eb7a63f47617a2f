// Feeds what a hostile peer sends over a queue pair, and the notes by which it introduces itself.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <optional>

#include <tutti/error.hpp>

#include "../transport/fake_verbs.h"
#include "common/bytes.h"
#include "targets.h"
#include "transport/queue_pair/endpoint.h"
#include "transport/queue_pair/introduction.h"
#include "transport/ucx/header.h"

namespace tutti::fuzz {
namespace {

using qp::Frame;
using qp::FrameKind;

constexpr std::size_t kMostMessage = 40'000;  // three slots
constexpr std::uint32_t kPeerReceives = 1024;

// The input is a sequence of sends. Before each stands its length in bytes. The input holds only
// the frame; what lies in the slot is the payload, which names memory of the peer that may be read,
// or none where the checksum of the frame's header is odd.
struct Send {
  std::uint16_t bytes = 0;
};

std::string send(FrameKind kind, std::uint32_t length, std::size_t payload,
                 std::int32_t channel = 0, std::uint16_t number = 0) {
  Frame frame;
  frame.kind = kind;
  frame.channel = channel;
  frame.number = number;
  frame.header.length = length;
  const Send head{static_cast<std::uint16_t>(sizeof frame + payload)};
  return std::string(bytes_of(head)).append(bytes_of(frame));
}

// Lets the payload that lies in a slot be an offer.
void name_memory(std::span<std::byte> slot, std::span<const std::byte> memory, std::uint32_t key) {
  Frame frame;
  std::memcpy(&frame, slot.data(), sizeof frame);
  if (frame.kind != FrameKind::offer) return;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const qp::Offer offer{address, key + frame.header.crc % 2, qp::Path::kFirst};
  std::memcpy(slot.data() + sizeof frame, &offer, sizeof offer);
}

// A frame's sequence number counts from the one that is right.
void number(std::span<std::byte> slot, std::uint16_t& next) {
  Frame frame;
  std::memcpy(&frame, slot.data(), sizeof frame);
  if (frame.kind == FrameKind::room) return;
  frame.sequence = static_cast<std::uint16_t>(frame.sequence + next++);
  std::memcpy(slot.data(), &frame, sizeof frame);
}

// The notes of a peer over the control connection.
void introduce(std::string_view bytes) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return;
  const Fd peer(ends[1]);
  qp::fake::Network network;
  const SteadyClock clock;
  qp::Endpoint endpoint(2, clock, {network.make_device()});
  if (::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;
  try {
    qp::Introduction introduction(endpoint.make_connection(), "", net::Stream(Fd(ends[0])));
    for (int turn = 0; turn < 4; ++turn) introduction.advance(clock.now());
  } catch (const Error&) {  // It says what is wrong.
  }
}

struct OwnClock final : Clock {
  TimePoint now() const override { return time; }
  TimePoint time = TimePoint() + std::chrono::hours(1);
};

// The notes of a peer about paths, once the first one works. The first byte says which end proposes
// them.
void change_paths(std::string_view bytes) {
  int ends[2];
  if (bytes.empty() ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    return;
  Fd peer(ends[1]);
  qp::fake::Network network;
  OwnClock clock;
  StatusPage status_page{};
  const qp::GroupContext context{kMostMessage, &status_page, -1};
  qp::Endpoint endpoint(2, clock, {network.make_device(), network.make_device()});
  auto made = endpoint.make_connection();
  qp::Connection& connection = *made;
  const auto pair = network.make_device()->make({64, 64, 4}, nullptr);
  std::vector<std::byte> slot(qp::kSlotBytes);
  for (std::uint32_t i = 0; i < 64; ++i)
    if (!pair->receive(i, {slot.data(), qp::kSlotBytes, 0})) return;
  connection.open(2);
  connection.queue_pair().connect(pair->address());
  pair->connect(connection.queue_pair().address());
  connection.add_control(qp::Control(net::Stream(Fd(ends[0]))), 1, bytes.front() % 2 != 0, 2);
  endpoint.add_peer(1, std::move(made));
  qp::Group group(connection, context, 0);
  connection.add(group);
  bytes.remove_prefix(1);
  if (::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;
  for (int turn = 0; turn < 20; ++turn) {
    SendChannel& sender = connection.channel(group, 0).sender;
    if (sender.acquire(9)) sender.post({1, 2, 9, 0});
    endpoint.progress();
    clock.time += std::chrono::milliseconds(turn * 100);
  }
  peer = Fd();
  for (int turn = 0; turn < 4; ++turn) {
    endpoint.progress();
    clock.time += std::chrono::seconds(1);
  }
  assert(connection.how_ended() != qp::Connection::End::none);
  assert(connection.slot_bytes() < (std::size_t{16} << 20));
  connection.remove(group);
}

std::string note(qp::Note::Step step, std::uint32_t path, std::string_view text) {
  qp::Note note;
  note.step = step;
  note.path = path;
  note.text_bytes = static_cast<std::uint32_t>(text.size());
  return std::string(bytes_of(note)).append(text);
}

}  // namespace

// The first byte chooses between sends and notes, and whether messages are received into memory of
// the caller.
void run_sends(std::string_view bytes) {
  if (bytes.empty()) return;
  const auto choice = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  if (choice % 8 == 7) return introduce(bytes);
  if (choice % 8 == 6) return change_paths(bytes);
  qp::fake::Network network(choice);
  const SteadyClock clock;
  StatusPage status_page{};
  const qp::GroupContext context{kMostMessage, &status_page, -1};
  qp::Endpoint endpoint(2, clock, {network.make_device()});
  const auto connection = endpoint.make_connection();
  qp::Group group(*connection, context, 0);
  connection->add(group);
  std::vector<std::byte> slot(qp::kSlotBytes);
  const auto peer = network.make_device()->make({kPeerReceives, kPeerReceives, 4}, nullptr);
  std::vector<std::byte> readable(kMostMessage, std::byte{3});
  const auto region = peer->add(readable.data(), readable.size(), true);
  for (std::uint32_t i = 0; i < kPeerReceives; ++i)
    if (!peer->receive(i, {slot.data(), qp::kSlotBytes, 0})) return;
  connection->open();
  connection->queue_pair().connect(peer->address());
  peer->connect(connection->queue_pair().address());
  RecvChannel& receiver = connection->channel(group, 0).receiver;
  std::vector<std::byte> place(kMostMessage);
  const Memory to{choice % 2 == 0 ? place.data() : nullptr, place.size()};
  const auto held =
      choice % 3 == 0 ? endpoint.registrations()->add(place.data(), place.size(), true) : nullptr;
  SendChannel& sender = connection->channel(group, 0).sender;
  for (int messages = choice % 4; messages > 0; --messages)
    if (sender.acquire_zero_copy({place.data(), place.size()}))
      sender.post({1, 2, kMostMessage, 0});
  std::uint16_t next = 0;
  for (int sends = 0; sends < 256; ++sends) {
    const auto head = fixed_part<Send>(bytes);
    if (!head || connection->how_ended() != qp::Connection::End::none) break;
    bytes.remove_prefix(sizeof *head);
    const std::size_t its = std::min<std::size_t>({bytes.size(), head->bytes, sizeof(Frame)});
    std::memcpy(slot.data(), bytes.data(), its);
    bytes.remove_prefix(its);
    name_memory(slot, readable, region->remote_key());
    number(slot, next);
    const auto length = std::min<std::uint32_t>(head->bytes, qp::kSlotBytes);
    std::vector<std::byte> sent(slot.begin(), slot.begin() + length);
    if (!peer->send(0, {sent.data(), length, 0})) break;
    if (choice % 4 < 2 && !receiver.peek()) receiver.get(to);
    for (int turn = 0; turn < 8; ++turn) connection->pump();
    while (const auto message = receiver.peek()) {
      assert(message->header.length <= kMostMessage);
      if (message->remote && receiver.get(to) == nullptr) break;
      receiver.release();
    }
  }
  assert(connection->memory_bytes(group) < (std::size_t{64} << 20));
  connection->remove(group);
}

// The first four bytes are the length of the payload.
void run_ucx_headers(std::string_view bytes) {
  const auto payload_bytes = fixed_part<std::uint32_t>(bytes);
  if (!payload_bytes) return;
  bytes.remove_prefix(sizeof *payload_bytes);
  const auto header =
      ucx::parse_header(std::as_bytes(std::span(bytes.data(), bytes.size())), *payload_bytes);
  if (!header) return;
  assert(bytes.size() == sizeof(ucx::Header) && header->token != 0);
  assert(header->kind == ucx::Kind::read || header->length == *payload_bytes);
  assert(header->kind != ucx::Kind::read || (header->key != 0 && *payload_bytes == 0));
  assert(header->kind != ucx::Kind::frame || header->length <= qp::kSlotBytes);
}

std::vector<std::string> ucx_header_seeds() {
  std::vector<std::string> seeds;
  for (const ucx::Kind kind : {ucx::Kind::frame, ucx::Kind::read, ucx::Kind::answer}) {
    ucx::Header header;
    header.kind = kind;
    header.token = 1;
    header.length = 8;
    if (kind == ucx::Kind::read) header.key = 1;
    const std::uint32_t payload_bytes = kind == ucx::Kind::read ? 0 : 8;
    seeds.push_back(std::string(bytes_of(payload_bytes)) + std::string(bytes_of(header)));
  }
  return seeds;
}

std::vector<std::string> send_seeds() {
  using enum FrameKind;
  const auto part = static_cast<std::uint32_t>(qp::kPartBytes);
  using Step = qp::Note::Step;
  Frame frame;
  frame.kind = status_page_request;
  return {std::string(1, '\0') + send(message, 3, 3) + send(message, 0, 0) + send(credit, 0, 0),
          std::string(1, '\1') + send(message, part + 1, part) + send(more, 0, 1),
          std::string(1, '\2') + send(status_page_request, 0, 0) +
              send(status_page, 0, kStatusPageBytes) + send(room, 0, 0),
          std::string(1, '\3') + send(message, 5, 5, 1) + send(message, 5, 5, 2),
          std::string(1, '\0') + send(offer, kMostMessage, sizeof(qp::Offer)) +
              send(offer, 9, sizeof(qp::Offer), 0, 1) + send(withdraw, 0, 0, 0, 1),
          std::string(1, '\2') + send(taken, 0, 0) + send(decline, 0, 0, 0, 1) + send(room, 0, 0),
          std::string(1, '\1') + send(decline, 0, 0) + send(withdraw, 0, 0) + send(credit, 0, 0),
          std::string(1, '\7') + note(Step::address, qp::Path::kFirst, "abc"),
          std::string("\6\1") + note(Step::address, 2, "1") + note(Step::heard, 2, ""),
          std::string("\6\1") + note(Step::lost, 1, "why") + note(Step::frame, 0, bytes_of(frame)),
          std::string("\6\2") + note(Step::address, 2, "1") + note(Step::connected, 2, "") +
              note(Step::lost, 2, "why")};
}

}  // namespace tutti::fuzz
