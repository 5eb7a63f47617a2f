#include "collectives/planning/graph_actors.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>

#include <tutti/error.hpp>

namespace tutti {
namespace {

/// Finds streams and ports by the actor and the class of their channel, or by the actor and the
/// steps that use them where a class has neighbours that differ.
class StreamEnds {
 public:
  void add(std::uint32_t actor, std::uint32_t channel_class, std::uint64_t label,
           std::uint32_t number) {
    by_class_.try_emplace(joined(actor, channel_class), number);
    by_label_.try_emplace(joined(joined(actor, 1), label), number);
  }
  std::uint32_t of_class(std::uint32_t actor, std::uint32_t channel_class) const {
    const auto found = by_class_.find(joined(actor, channel_class));
    return found == by_class_.end() ? GraphActors::kNone : found->second;
  }
  std::uint32_t find(std::uint32_t actor, std::uint32_t channel_class, std::uint64_t label) const {
    const std::uint32_t exact = of_class(actor, channel_class);
    if (exact != GraphActors::kNone) return exact;
    const auto found = by_label_.find(joined(joined(actor, 1), label));
    assert(found != by_label_.end() && "ranks of a class have equal ports");
    return found->second;
  }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> by_class_, by_label_;
};

/// Returns lists by key as one array and where each begins.
void group(const std::vector<std::uint32_t>& key_of, std::size_t keys,
           std::vector<std::uint32_t>& first, std::vector<std::uint32_t>& list) {
  first.assign(keys + 1, 0);
  for (const std::uint32_t key : key_of) ++first[key + std::size_t{1}];
  for (std::size_t key = 0; key < keys; ++key) first[key + 1] += first[key];
  list.resize(key_of.size());
  std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
  for (std::size_t at = 0; at < key_of.size(); ++at)
    list[next[key_of[at]]++] = static_cast<std::uint32_t>(at);
}

}  // namespace

Picoseconds latency_of(const Routes& routes, const GraphCosts& costs, int from, int to,
                       const std::uint32_t* first, const std::uint32_t* last) {
  double us = 0;
  for (const std::uint32_t* link = first; link != last; ++link) us += routes.link(*link).latency_us;
  const bool in_node = from / routes.gpus() == to / routes.gpus();
  return (in_node ? costs.node_latency : costs.network_latency) +
         static_cast<Picoseconds>(us * 1e6);
}

GraphActors::GraphActors(const GraphRequest& request) {
  add_ports(request);
  join(request);
}

void GraphActors::add_ports(const GraphRequest& request) {
  const auto& [plans, channels, classes, routes] =
      std::tie(request.plans, request.channels, request.classes, request.routes);
  std::size_t lanes = 0;
  for (std::uint32_t number = 0; number < classes.first.size(); ++number) {
    const RankShape& shape = plans.shape(classes.first[number]);
    actors.push_back({&shape, lanes, port_of_receive.size(), stream_of_send.size()});
    lanes += shape.lanes.size();
    actor_of_lane.resize(lanes, number);
    stream_of_send.resize(stream_of_send.size() + shape.sends.size(), kNone);
    port_of_receive.resize(port_of_receive.size() + shape.receives.size(), kNone);
  }
}

void GraphActors::join(const GraphRequest& request) {
  const auto& [plans, channels, classes, routes] =
      std::tie(request.plans, request.channels, request.classes, request.routes);
  std::vector<std::size_t> channel_of_receive(plans.all_receives().size());
  for (std::size_t channel = 0; channel < channels.receives.size(); ++channel)
    channel_of_receive[channels.receives[channel]] = channel;
  StreamEnds of_streams, of_ports;
  for (std::uint32_t number = 0; number < actors.size(); ++number) {
    const int rank = classes.first[number];
    const Actor& actor = actors[number];
    for (std::size_t at = 0; at < actor.shape->sends.size(); ++at) {
      const std::size_t channel = plans.first_send(rank) + at;
      const RankShape::Port& port = actor.shape->sends[at];
      if (of_streams.of_class(number, classes.of_channel[channel]) != kNone) continue;
      const auto stream = static_cast<std::uint32_t>(streams.size());
      stream_of_send[actor.first_send + at] = stream;
      of_streams.add(number, classes.of_channel[channel], port.label, stream);
      const int to = plans.all_sends()[channel].peer;
      streams.push_back({static_cast<std::uint32_t>(actor.first_lane + port.lane), kNone,
                         latency_of(routes, request.costs, rank, to,
                                    channels.links.data() + channels.first[channel],
                                    channels.links.data() + channels.first[channel + 1]),
                         channel});
    }
    for (std::size_t at = 0; at < actor.shape->receives.size(); ++at) {
      const std::size_t channel = channel_of_receive[plans.first_receive(rank) + at];
      const RankShape::Port& port = actor.shape->receives[at];
      if (of_ports.of_class(number, classes.of_channel[channel]) != kNone) continue;
      const auto one = static_cast<std::uint32_t>(ports.size());
      port_of_receive[actor.first_receive + at] = one;
      of_ports.add(number, classes.of_channel[channel], port.label, one);
      ports.push_back({static_cast<std::uint32_t>(actor.first_lane + port.lane), kNone, channel});
    }
  }
  std::vector<std::uint32_t> read, consumers;
  for (Port& port : ports) {
    const int from = channels.from[port.channel];
    const std::size_t at = port.channel - plans.first_send(from);
    port.stream =
        of_streams.find(classes.of_rank[static_cast<std::size_t>(from)],
                        classes.of_channel[port.channel], plans.shape(from).sends[at].label);
    read.push_back(port.stream);
  }
  for (Stream& stream : streams) {
    const int to = plans.all_sends()[stream.channel].peer;
    const std::size_t at = channels.receives[stream.channel] - plans.first_receive(to);
    stream.consumer =
        of_ports.find(classes.of_rank[static_cast<std::size_t>(to)],
                      classes.of_channel[stream.channel], plans.shape(to).receives[at].label);
    consumers.push_back(stream.consumer);
  }
  group(read, streams.size(), first_reader, readers);
  group(consumers, ports.size(), first_writer, writers);
}

LinkSharing GraphActors::sharing(const GraphRequest& request) const {
  const auto& [plans, channels, classes, routes] =
      std::tie(request.plans, request.channels, request.classes, request.routes);
  std::vector<double> capacities(classes.link_classes, 1);
  // Says how many channels of a stream's class its links carry.
  std::unordered_map<std::uint64_t, double> carried;
  const auto key = [](std::uint32_t link, std::uint32_t of_class) {
    return std::uint64_t{link} << 32 | of_class;
  };
  std::vector<bool> asked(classes.of_link.size());
  const bool one_each = classes.first.size() == classes.of_rank.size();
  for (const Stream& stream : streams)
    for (std::size_t at = channels.first[stream.channel]; at < channels.first[stream.channel + 1];
         ++at) {
      const std::uint32_t link = channels.links[at];
      asked[link] = true;
      if (!one_each) carried.try_emplace(key(link, classes.of_channel[stream.channel]), 0);
      capacities[classes.of_link[link]] = routes.link(link).gb_per_s * 1e-3;
    }
  for (std::size_t channel = 0; channel < channels.from.size() && !one_each; ++channel)
    for (std::size_t at = channels.first[channel]; at < channels.first[channel + 1]; ++at) {
      if (!asked[channels.links[at]]) continue;
      const auto found = carried.find(key(channels.links[at], classes.of_channel[channel]));
      if (found != carried.end()) ++found->second;
    }
  LinkSharing sharing(capacities, request.tolerance);
  std::vector<LinkSharing::Use> uses;
  for (const Stream& stream : streams) {
    uses.clear();
    for (std::size_t at = channels.first[stream.channel]; at < channels.first[stream.channel + 1];
         ++at) {
      const std::uint32_t link = channels.links[at], of_link = classes.of_link[link];
      const double weight =
          one_each ? 1 : carried.at(key(link, classes.of_channel[stream.channel]));
      const auto known = std::find_if(uses.begin(), uses.end(),
                                      [&](const auto& use) { return use.link == of_link; });
      if (known == uses.end())
        uses.push_back({of_link, weight});
      else
        known->weight = std::max(known->weight, weight);
    }
    sharing.add(uses);
  }
  return sharing;
}

std::vector<LinkLoad> loads_of(const GraphRequest& request) {
  const auto& [plans, channels, classes, routes] =
      std::tie(request.plans, request.channels, request.classes, request.routes);
  std::vector<double> bytes(classes.of_link.size());
  const double full = static_cast<double>(plans.pieces() - 1);
  for (std::size_t channel = 0; channel < channels.from.size(); ++channel) {
    const int from = channels.from[channel];
    const RankShape::Port& port = plans.shape(from).sends[channel - plans.first_send(from)];
    const double all =
        static_cast<double>(port.bytes[0]) * full + static_cast<double>(port.bytes[1]);
    for (std::size_t at = channels.first[channel]; at < channels.first[channel + 1]; ++at)
      bytes[channels.links[at]] += all;
  }
  std::vector<LinkLoad> loads;
  for (std::uint32_t link = 0; link < bytes.size(); ++link)
    if (bytes[link] > 0) loads.push_back({link, bytes[link]});
  return loads;
}

}  // namespace tutti
