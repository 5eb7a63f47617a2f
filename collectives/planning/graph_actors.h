// Describes what the simulator over a graph runs: actors, each of which stands for the ranks of a
// class, and the streams of messages between them.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/planning/graph_simulation.h"
#include "collectives/planning/link_sharing.h"

namespace tutti {

struct GraphActors {
  static constexpr std::uint32_t kNone = 0xffff'ffff;

  struct Actor {
    const RankShape* shape;
    std::size_t first_lane, first_receive, first_send;
  };
  /// The messages that an actor sends to one port of another. Channels of one class that an actor
  /// has are one stream, since they do the same.
  struct Stream {
    std::uint32_t lane;      // the sender's
    std::uint32_t consumer;  // the port that gives back its room
    Picoseconds latency;
    std::size_t channel;  // that stands for its class
  };
  struct Port {
    std::uint32_t lane;    // the receiver's
    std::uint32_t stream;  // whose messages it reads
    std::size_t channel;
  };

  explicit GraphActors(const GraphRequest& request);

  std::vector<Actor> actors;
  std::vector<Stream> streams;
  std::vector<Port> ports;
  /// Holds, by actor and port of its shape, the stream on which it sends, and the port on which it
  /// receives; kNone where another port of the actor stands for this one.
  std::vector<std::uint32_t> stream_of_send, port_of_receive;
  /// The ports that read a stream, and the streams to which a port gives room back.
  std::vector<std::uint32_t> first_reader, readers, first_writer, writers;
  std::vector<std::uint32_t> actor_of_lane;

  /// Returns the sharing of the links, with a flow for each stream by its number.
  LinkSharing sharing(const GraphRequest& request) const;

 private:
  void add_ports(const GraphRequest& request);
  void join(const GraphRequest& request);
};

/// Returns the bytes that all channels carry over each class of links: over one link of the class
/// that stands for it.
struct LinkLoad {
  std::uint32_t link = 0;  ///< A link of the class.
  double bytes = 0;
};
std::vector<LinkLoad> loads_of(const GraphRequest& request);

}  // namespace tutti
