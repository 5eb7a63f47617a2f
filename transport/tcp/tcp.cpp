#include "transport/tcp/tcp.h"

#include <poll.h>

#include <algorithm>
#include <cassert>
#include <chrono>

#include "rendezvous/host.h"
#include "transport/mesh/part.h"
#include "transport/tcp/endpoint.h"

namespace tutti::tcp {
namespace {

// How long close() waits for room in the socket for its status page.
constexpr std::chrono::milliseconds kGoodbye{1000};

LinkCapabilities link_of(bool one_machine) {
  LinkCapabilities link;
  link.largest_message = mesh::kLargestMessage;
  link.latency_ps = one_machine ? 8'000'000 : 30'000'000;
  link.message_ps = 2'000'000;  // a system call
  link.bytes_per_second = one_machine ? 3'000'000'000 : 1'000'000'000;
  return link;
}

LinkCapabilities link_of(const TransportContext& context, const Subset& subset) {
  LinkCapabilities link = link_of(false);
  link.largest_message = mesh::largest_message(context, subset);
  return link;
}

using Part = mesh::Part<Endpoint, Connection, Group>;

class TcpTransport final : public Part {
 public:
  /// Makes the first transport, and with it the endpoint.
  explicit TcpTransport(const TransportContext& context)
      : TcpTransport(
            context,
            std::make_shared<Endpoint>(context.size, *context.clock, context.config->checksum),
            whole(context)) {
    listen("TCP");
  }

  /// The members of `subset` are ranks of the endpoint.
  TcpTransport(const TransportContext& context, std::shared_ptr<Endpoint> endpoint,
               const Subset& subset)
      : Part(context, std::move(endpoint), subset, link_of(context, subset)) {}

  ~TcpTransport() override {
    close();
    leave();
  }

  void connect(std::span<const std::string> addresses, TimePoint deadline) override;

  SendChannel& sender(int peer, int number) override {
    return connection(peer).sender(group(peer), number);
  }
  RecvChannel& receiver(int peer, int number) override {
    return connection(peer).receiver(group(peer), number);
  }
  bool all_left() override;

  std::unique_ptr<Transport> split(const Subset& subset) override {
    return std::make_unique<TcpTransport>(context_, endpoint_, of_endpoint(subset));
  }
  void close() noexcept override;
};

void TcpTransport::connect(std::span<const std::string> addresses, TimePoint deadline) {
  mesh::Connections joined = connect_mesh(addresses, deadline);
  if (!joined.lifelines.empty()) endpoint_->watch_lives(std::move(joined.lifelines));
  for (std::size_t rank = 0; rank < joined.data.size(); ++rank)
    if (joined.data[rank])
      endpoint_->add_peer(static_cast<int>(rank), std::move(joined.data[rank]));
  add_groups();
}

// Messages of other communicators may wait for a peer that does not read.
bool TcpTransport::all_left() {
  if (!endpoint_->has_unsent()) return true;
  endpoint_->flush();
  if (!endpoint_->has_unsent()) return true;
  bool left = true;
  for_each([&](const Connection& connection, const Group& group) {
    left = left && !connection.has_unsent_of(group);
  });
  return left;
}

void TcpTransport::close() noexcept {
  if (!begin_close()) return;
  const auto deadline = std::chrono::steady_clock::now() + kGoodbye;
  for_each([&](Connection& to, Group& group) {
    to.revoke(group);
    to.put_status_page(group);
    while (!to.flush() && std::chrono::steady_clock::now() < deadline) {
      pollfd writable{to.socket(), POLLOUT, 0};
      ::poll(&writable, 1, 10);
    }
  });
}

std::optional<std::string> place(const TransportContext&) { return host_identity(); }

Reach reach(std::string_view place, std::string_view other) {
  return {{}, link_of(place == other)};
}

std::unique_ptr<Transport> make(const TransportContext& context) {
  return std::make_unique<TcpTransport>(context);
}

}  // namespace

TransportEntry entry() { return {"tcp", place, reach, make}; }

}  // namespace tutti::tcp
