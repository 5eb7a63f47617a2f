// The schedules of all ranks in a form that is small enough for very many of them: what ranks do is
// kept once for all that do the same, and each rank has the numbers of its peers.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "collectives/schedule/program.h"
#include "collectives/schedule/rounds.h"

namespace tutti {

/// The hash of a sequence that begins with what `hash` stands for, and goes on with `number`.
constexpr std::uint64_t joined(std::uint64_t hash, std::uint64_t number) noexcept {
  return mix(hash ^ mix(number));
}

/// Describes what a rank does, without the numbers of its peers. In an array of two numbers, [0] is
/// for a full piece and [1] for the last one.
struct RankShape {
  struct Step {
    std::uint32_t first_port;  ///< In `ports_of_steps`: the ports on which it receives, then sends.
    std::uint32_t receives, sends;
    std::uint32_t inputs;
    std::array<std::uint64_t, 2> bytes;
    std::uint64_t position;  ///< In its lane, in the first round.
    std::uint64_t apart;     ///< The distance to its next round.
    std::uint64_t rounds;
    std::int32_t after_lane, after_step, pieces_back;  ///< See After; steps of the shape.

    bool operator==(const Step&) const = default;
  };
  /// Consecutive steps that are done `count` times.
  struct Block {
    std::uint32_t first_step, steps;
    std::uint64_t count;

    bool operator==(const Block&) const = default;
  };
  struct Lane {
    std::uint32_t first_block, blocks;
    std::uint64_t steps;  ///< Of one piece, with all rounds.

    bool operator==(const Lane&) const = default;
  };
  struct Port {
    std::uint32_t lane;
    /// Equal for ports of a direction that the same steps use.
    std::uint64_t label;
    std::array<std::uint64_t, 2> bytes;  ///< Of all messages of a piece.

    bool operator==(const Port&) const = default;
  };

  std::vector<Lane> lanes;
  std::vector<Block> blocks;
  std::vector<Step> steps;
  std::vector<std::uint32_t> ports_of_steps;
  std::vector<Port> receives, sends;

  bool operator==(const RankShape&) const = default;
};

/// The plans of all ranks of one call.
class RankPlans {
 public:
  struct Port {
    int peer, channel;

    auto operator<=>(const Port&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  /// `message_bytes` is the length of the largest message. Throws `unavailable` if it is too small
  /// for the algorithm.
  RankPlans(const CallSignature& call, std::size_t message_bytes);

  /// Adds the next rank's schedule. All chunks are taken to be as long as the longest. Throws
  /// `unavailable` where all ranks together would take too much memory.
  void add(const collectives::Rounds& rounds);
  /// Adds the next rank's schedule, step by step and with the length of each chunk.
  void add_each_step(const Schedule& schedule);

  int ranks() const { return static_cast<int>(shape_of_.size()); }
  std::uint64_t pieces() const { return pieces_; }
  /// Says whether chunks are shorter than they are taken to be.
  bool rounded() const { return rounded_; }
  const RankShape& shape(int rank) const {
    return shapes_[shape_of_[static_cast<std::size_t>(rank)]];
  }
  std::uint32_t shape_number(int rank) const { return shape_of_[static_cast<std::size_t>(rank)]; }
  const std::vector<RankShape>& shapes() const { return shapes_; }
  /// The steps that rank does in the whole call.
  std::uint64_t steps_of(int rank) const;

  /// Indices of a rank's first port in all_receives() and all_sends(), in the order of its shape;
  /// for ranks(), the number of all.
  std::size_t first_receive(int rank) const {
    return first_receive_[static_cast<std::size_t>(rank)];
  }
  std::size_t first_send(int rank) const { return first_send_[static_cast<std::size_t>(rank)]; }
  const std::vector<Port>& all_receives() const { return receives_; }
  const std::vector<Port>& all_sends() const { return sends_; }
  /// Returns the index in all_receives() of the other end of a port in all_sends(), which belongs
  /// to rank `from`. Throws `internal` if there is none.
  std::size_t other_end(int from, std::size_t send) const;

 private:
  class Writer;

  void finish(RankShape shape);

  CallSignature call_;
  std::size_t message_bytes_;
  std::uint64_t pieces_ = 1;
  bool rounded_ = false;
  std::size_t records_ = 0;
  std::vector<RankShape> shapes_;
  std::multimap<std::uint64_t, std::uint32_t> known_;  // shapes by hash
  std::vector<std::uint32_t> shape_of_;
  std::vector<std::size_t> first_receive_{0}, first_send_{0};
  std::vector<Port> receives_, sends_;
  std::vector<std::size_t> by_peer_;  // indices of receives_, each rank's by peer and channel
};

}  // namespace tutti
