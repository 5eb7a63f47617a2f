#include "targets.h"

#include <array>
#include <cassert>

#include <tutti/error.hpp>

#include "common/address.h"
#include "common/bytes.h"
#include "common/random.h"
#include "rendezvous/authentication.h"
#include "rendezvous/hello.h"
#include "rendezvous/store_service.h"

namespace tutti::fuzz {
namespace {

using rendezvous::Reply;
using rendezvous::Request;
using rendezvous::StoreService;
using rendezvous::Verb;

Claim claim() { return {Claim::Purpose::store, 1, 0, 7}; }
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
    assert(pending.size() < sizeof(AuthHello) && "a message that is whole is taken");
  }
  assert(output.size() <= sizeof(AuthHello) + sizeof(AuthProof) &&
         "little is said to somebody who says much");
}

// The first byte chooses the end and how the others are cut.
void run_authentication(std::string_view bytes) {
  if (bytes.empty()) return;
  const auto choice = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  SeededRandom random(1);
  const std::size_t step = 1 + choice / 2;
  if (choice % 2 == 0)
    feed(AuthAcceptor(secret(), claim(), random), bytes, step);
  else
    feed(AuthInitiator(secret(), claim(), random), bytes, step);
}

std::vector<std::string> authentication_seeds() {
  SeededRandom random(2);
  AuthInitiator initiator(secret(), claim(), random);
  AuthAcceptor acceptor(secret(), claim(), random);
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
    sane = service.take(static_cast<int>(input.size() % 3), input);
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
          request(1, Verb::wait, "key", "") + request(2, Verb::add, "key", "1")};
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

void run_hello(std::string_view bytes) {
  try {
    const Hello hello = decode_hello(bytes, 0);
    assert(decode_hello(encode(hello), 0) == hello);
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::corrupt);
  }
}

std::vector<std::string> hello_seeds() {
  Hello hello;
  hello.version = "0.1.0";
  hello.settings = "algorithm=auto\n";
  hello.host = "here";
  hello.cpus = {0, 1, 7};
  hello.addresses = {{"shm", "somewhere"}, {"local", ""}};
  return {encode(hello), encode(Hello{})};
}

constexpr std::array kTargets{
    Target{"authentication", run_authentication, authentication_seeds},
    Target{"requests", run_requests, request_seeds},
    Target{"addresses", run_addresses, address_seeds},
    Target{"hello", run_hello, hello_seeds},
};

}  // namespace

std::span<const Target> targets() { return kTargets; }

}  // namespace tutti::fuzz
