#include "targets.h"

#include <sys/socket.h>

#include <array>
#include <cassert>

#include <tutti/error.hpp>

#include "common/address.h"
#include "common/bytes.h"
#include "common/random.h"
#include "net/authentication.h"
#include "rendezvous/host.h"
#include "rendezvous/roster.h"
#include "rendezvous/store/store_service.h"
#include "rendezvous/store/ticket.h"
#include "transport/tcp/endpoint.h"

namespace tutti::fuzz {
namespace {

using rendezvous::Reply;
using rendezvous::Request;
using rendezvous::StoreService;
using rendezvous::Verb;

net::Claim claim() { return {net::Claim::Purpose::store, 1, 0, 7}; }
Secret secret() { return Secret("0123456789abcdef"); }

template <typename End>
void feed(End end, std::string_view bytes, std::size_t step) {
  std::string pending, output;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    pending.append(bytes.substr(at, step));
    std::string_view input = pending;
    const auto state = end.advance(input, output);
    assert(input.size() <= pending.size());
    pending.erase(0, pending.size() - input.size());
    assert(state != End::State::done && "nobody gets in who does not know the secret");
    if (state == End::State::failed) break;
    assert(pending.size() < sizeof(net::AuthHello) && "a message that is whole is taken");
  }
  assert(output.size() <= sizeof(net::AuthHello) + sizeof(net::AuthProof) &&
         "little is said to somebody who says much");
}

// The first byte chooses the end of the handshake, and the size of the pieces in which the other
// bytes arrive.
void run_authentication(std::string_view bytes) {
  if (bytes.empty()) return;
  const auto choice = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  SeededRandom random(1);
  const std::size_t step = 1 + choice / 2;
  if (choice % 2 == 0)
    feed(net::AuthAcceptor(secret(), claim(), random), bytes, step);
  else
    feed(net::AuthInitiator(secret(), claim(), random), bytes, step);
}

std::vector<std::string> authentication_seeds() {
  SeededRandom random(2);
  net::AuthInitiator initiator(secret(), claim(), random);
  net::AuthAcceptor acceptor(secret(), claim(), random);
  std::string to_acceptor, to_initiator, all_to_acceptor, all_to_initiator;
  for (int turn = 0; turn < 3; ++turn) {
    std::string_view input = to_initiator;
    initiator.advance(input, to_acceptor);
    all_to_acceptor += to_acceptor;
    to_initiator.clear();
    input = to_acceptor;
    acceptor.advance(input, to_initiator);
    all_to_initiator += to_initiator;
    to_acceptor.clear();
  }
  return {"\x90" + all_to_acceptor, "\x91" + all_to_initiator};
}

void run_requests(std::string_view bytes) {
  std::size_t replies = 0;
  StoreService service([&](int, const Reply& reply, std::string_view value) {
    assert(reply.bytes == value.size());
    ++replies;
  });
  std::string_view input = bytes;
  for (bool sane = true; sane && !input.empty();) {
    const std::size_t before = input.size();
    sane = service.take(static_cast<int>(input.size() % 3), input, [] { return true; });
    if (input.size() == before) break;
  }
  for (int guest = 0; guest < 3; ++guest) service.leave(guest);
  assert(service.waits() == 0 && "who has left waits for nothing");
}

std::string request(std::uint64_t id, Verb verb, std::string_view key, std::string_view value) {
  std::string bytes(bytes_of(Request{id, verb, static_cast<std::uint32_t>(key.size()),
                                     static_cast<std::uint32_t>(value.size()), 0}));
  return bytes.append(key).append(value);
}

std::vector<std::string> request_seeds() {
  return {request(1, Verb::set, "key", "value") + request(2, Verb::get, "key", ""),
          request(1, Verb::get, "key", "") + request(1, Verb::forget, "", ""),
          request(1, Verb::add, "sum", "-5") + request(2, Verb::add, "sum", "9223372036854775807"),
          request(1, Verb::wait, "key", "") + request(2, Verb::add, "key", "1"),
          request(1, Verb::add, "sum", "00") + request(2, Verb::set_when_gone, "sum", "gone") +
              request(3, Verb::get, "late", rendezvous::encode_keys({"sum", "other"}))};
}

void run_addresses(std::string_view bytes) {
  const auto address = parse_socket_address(bytes);
  if (!address) return;
  assert(address->port >= 1 && address->port <= 65'535 && !address->host.empty());
  assert(parse_socket_address(to_text(*address)) == address);
}

std::vector<std::string> address_seeds() {
  return {"node7:29500", "10.0.0.1:1", "[fe80::1%eth0]:65535", "[::1]:80"};
}

void run_ticket(std::string_view bytes) {
  const auto ticket = rendezvous::decode_ticket(bytes);
  if (!ticket) return;
  assert(ticket->server != 0 && ticket->secret.bytes().size() == 16);
  const auto again = rendezvous::decode_ticket(rendezvous::encode(*ticket));
  assert(again && again->server == ticket->server && again->port == ticket->port &&
         again->addresses == ticket->addresses);
}

std::vector<std::string> ticket_seeds() {
  rendezvous::Ticket ticket{7, Secret("0123456789abcdef"), false, 0, {}};
  std::vector<std::string> seeds{rendezvous::encode(ticket)};
  ticket.port = 29500;
  ticket.addresses = {"10.0.0.1", "2001:db8::1"};
  seeds.push_back(rendezvous::encode(ticket));
  return seeds;
}

void run_roster(std::string_view bytes) {
  try {
    const Roster roster = decode_roster(bytes, 0);
    assert(encode(roster) == bytes && "it is read as it was written");
    std::size_t texts = 0;
    for (const Texts& column : roster.columns) {
      texts += column.values().size() + column.runs().size();
      for (const std::string& value : column.values())
        if (const auto location = parse_location(value))
          assert(parse_location(to_text(*location)) == location);
      if (column.size() != 0) assert(&column[column.size() - 1] <= &column.values().back());
    }
    assert(texts <= bytes.size() && "memory is taken for what is there");
    // A rank knows how many ranks to expect, and appends no roster of more.
    if (roster.columns.empty() || roster.columns.front().size() > (1u << 31) - 1) return;
    Texts twice = roster.columns.front();
    twice.append(roster.columns.front());
    assert(twice.values().size() <= roster.columns.front().values().size());
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::corrupt);
  }
}

std::vector<std::string> roster_seeds() {
  Roster roster{{Texts("algorithm=auto\n"), Texts("boot/17 0-1,7"), Texts("")}, {}};
  Roster other{{Texts("algorithm=auto\n"), Texts("boot/18 0-1,7"), Texts("there")}, {}};
  const std::string one = encode(roster);
  roster.append(other);
  roster.append(other);
  return {one, encode(roster), encode(Roster{{}, "what rank 7 says cannot be read"})};
}

constexpr std::size_t kMostMessage = 256;

// Receives the bytes of a peer that has authenticated. The first byte chooses whether frames carry
// checksums, the size of the pieces in which the other bytes arrive, and whether messages are
// received into memory of the caller.
void run_frames(std::string_view bytes) {
  int ends[2];
  if (bytes.empty() ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    return;
  const auto choice = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  const SteadyClock clock;
  StatusPage status_page{};
  tcp::Endpoint endpoint(2, clock, choice % 2 == 1);
  // The peer is destroyed first, so that nobody waits for data that it has not read.
  Fd peer(ends[1]);
  endpoint.add_peer(1, net::Stream(Fd(ends[0])));
  tcp::Connection& connection = *endpoint.peer(1);
  const tcp::GroupContext context{kMostMessage, &status_page, -1};
  tcp::Group group(connection, context, 0);
  connection.add(group);
  RecvChannel& receiver = connection.receiver(group, 0);
  std::array<std::byte, kMostMessage> place{};
  const std::size_t step = 1 + choice / 4;
  for (std::size_t at = 0; at < bytes.size() && !connection.ended(); at += step) {
    const std::string_view piece = bytes.substr(at, step);
    if (send(peer.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
    const Memory to{choice % 4 < 2 ? place.data() : nullptr, place.size()};
    if (choice % 8 < 4 && !receiver.peek()) receiver.get(to);
    endpoint.progress();
    while (const auto message = receiver.peek()) {
      assert(message->header.length <= kMostMessage);
      if (message->remote && receiver.get(to) == nullptr) break;
      receiver.release();
    }
  }
  assert(connection.memory_bytes(group) < (std::size_t{64} << 20));
  connection.remove(group);
}

std::string frame(tcp::FrameKind kind, int channel, std::string_view payload,
                  bool checked = false) {
  tcp::Frame head;
  head.kind = kind;
  head.channel = channel;
  head.header = {1, 2, static_cast<std::uint32_t>(payload.size()), 0};
  if (checked) {
    head.header.crc = crc32c(payload.data(), payload.size());
    head.check = tcp::check_of(head);
  }
  return std::string(bytes_of(head)).append(payload);
}

std::vector<std::string> frame_seeds() {
  using enum tcp::FrameKind;
  const std::string bare(kStatusPageBytes, 0), large(256, 'x');
  const auto all = [](char choice, const std::vector<std::string>& frames) {
    std::string bytes(1, choice);
    for (const std::string& one : frames) bytes.append(one);
    return bytes;
  };
  return {all('\x78', {frame(message, 0, "abc"), frame(message, 0, large), frame(message, 1, "")}),
          all('\x7e', {frame(status_page_request, 0, ""), frame(status_page, 0, bare)}),
          all('\x7f', {frame(message, 0, large, true), frame(credit, 0, "", true),
                       frame(message, 3, "abc", true)})};
}

constexpr std::array kTargets{
    Target{"authentication", run_authentication, authentication_seeds},
    Target{"requests", run_requests, request_seeds},
    Target{"addresses", run_addresses, address_seeds},
    Target{"ticket", run_ticket, ticket_seeds},
    Target{"roster", run_roster, roster_seeds},
    Target{"frames", run_frames, frame_seeds},
    Target{"packets", run_packets, packet_seeds, 1000},  // each makes shared memory
    Target{"ucx_headers", run_ucx_headers, ucx_header_seeds},
    Target{"sends", run_sends, send_seeds, 1000},  // each makes 448 KiB of slots
    Target{"transfers", run_transfers, transfer_seeds},
    Target{"settings", run_settings, settings_seeds},
    Target{"tuning_file", run_tuning_file, tuning_file_seeds, 1000},  // each is synced to the disk
    Target{"store_file", run_store_file, store_file_seeds, 1000},
    Target{"dump", run_dump, dump_seeds},
    Target{"topologies", run_topologies, topology_seeds},
    Target{"fabrics", run_fabrics, fabric_seeds},
    Target{"schedules", run_schedules, schedule_seeds, 2000},  // each is verified
};

}  // namespace

std::span<const Target> targets() { return kTargets; }

}  // namespace tutti::fuzz
