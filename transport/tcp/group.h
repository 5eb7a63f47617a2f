// A group: one communicator's part of one connection, with its channels and what is known of the
// peer's status page.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "transport/mesh/group.h"
#include "transport/tcp/channels.h"

namespace tutti::tcp {

using mesh::GroupContext;

/// Protected by its connection's lock, except for the functions of the channels, which say what
/// they need.
struct Group {
  Group(Connection& connection, const GroupContext& its, std::uint32_t its_id)
      : context(its), id(its_id), connection_(connection) {}

  /// Both ends of channel `number`. They are made when they are first used, or when the first
  /// message arrives.
  struct Channel {
    Channel(Connection& connection, const Group& group, int number)
        : receiver(connection, group.id, number, group.context.max_message_bytes),
          sender(connection, group.id, number, group.context.max_message_bytes, receiver) {}
    TcpRecvChannel receiver;
    TcpSendChannel sender;
  };
  Channel& channel(int number) {
    assert(number >= 0);
    std::unique_ptr<Channel>& made = channels[number];
    if (made == nullptr) made = std::make_unique<Channel>(connection_, *this, number);
    return *made;
  }

  const GroupContext& context;
  const std::uint32_t id;  ///< The Subset::id_with() the peer.
  std::map<int, std::unique_ptr<Channel>> channels;
  mesh::PeerPage peer_page;

 private:
  Connection& connection_;
};

}  // namespace tutti::tcp
