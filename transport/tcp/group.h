// One communicator's part of one connection: its channels, and what is known of the peer's status
// page.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "common/clock.h"
#include "transport/status_page.h"
#include "transport/tcp/channels.h"

namespace tutti::tcp {

/// What the groups of one communicator have in common. Outlives them.
struct GroupContext {
  std::size_t max_message_bytes = 0;
  StatusPage* status_page = nullptr;  ///< This rank's.
  int doorbell_fd = -1;  ///< To wake those of this communicator who sleep; -1: nobody does.
};

/// Under its connection's lock, but for the channels' own functions and `gone`.
struct Group {
  Group(Connection& connection, const GroupContext& its, std::uint32_t its_id)
      : context(its), id(its_id), connection_(connection) {}

  /// Both ends of channel `number`, made when first asked for, or when the first message comes.
  struct Channel {
    Channel(Connection& connection, const Group& group, int number)
        : receiver(connection, group.id, number, group.context.max_message_bytes),
          sender(connection, group.id, number, group.context.max_message_bytes, receiver) {}
    TcpRecvChannel receiver;
    TcpSendChannel sender;
  };
  Channel& channel(int number) {
    std::unique_ptr<Channel>& made = channels[number];
    if (made == nullptr) made = std::make_unique<Channel>(connection_, *this, number);
    return *made;
  }

  const GroupContext& context;
  const std::uint32_t id;  ///< Subset::id_with() of the peer.
  std::map<int, std::unique_ptr<Channel>> channels;
  StatusPage status_page{};           ///< The peer's, as it last came.
  std::optional<TimePoint> heard_at;  ///< When that was; none: never.
  bool asked = false;                 ///< For a newer one.

 private:
  Connection& connection_;
};

/// What a status page is on the wire: all but its first word, since who sleeps is the owner's
/// business.
inline constexpr std::size_t kStatusPageSkip = sizeof(StatusPage::sleepers);
inline constexpr std::size_t kStatusPageBytes = sizeof(StatusPage) - kStatusPageSkip;
using StatusPageBytes = std::array<std::byte, kStatusPageBytes>;

/// What others see of `status_page` at this moment; its owner may be writing to it.
StatusPageBytes read_status_page(const StatusPage& status_page);
/// The other way; others may be reading it.
void write_status_page(StatusPage& status_page, const StatusPageBytes& bytes);

}  // namespace tutti::tcp
