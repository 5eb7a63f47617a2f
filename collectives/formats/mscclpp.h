// Declares the ops of an execution plan of MSCCL++, from which the steps of schedules follow.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/formats/file_plan.h"

namespace tutti::collectives::mscclpp {

enum class Does { nothing, moves, reduces, waits, meets };

/// Says what an op does, apart from its operands.
struct Kind {
  std::string_view name;
  Does does = Does::nothing;
  bool signals = false;
  bool reads_packets = false;   ///< From scratch: it waits until they are there.
  bool writes_packets = false;  ///< To scratch, its own or a peer's.
};

struct Memory {
  int rank = 0;  ///< Whose memory.
  Place place = Place::input;
  int index = 0;
};

struct PlanOp {
  const Kind* kind = nullptr;
  /// An op that moves has pairs of them; one that reduces hands the result to all of `to`.
  std::vector<Memory> from, to;
  int count = 1;              ///< Chunks of each.
  std::vector<int> channels;  ///< Connections of the rank, for signals and waits.
  int barrier = 0;            ///< The number of a barrier in its rank,
  int meeting = 0;            ///< and how many blocks meet there.
};

/// A connection of a rank, and the one of the peer that is its other end.
struct Connection {
  int peer = 0;
  int other = 0;
};

struct Gpu {
  std::vector<Connection> connections;
  std::vector<std::vector<PlanOp>> blocks;
};

/// Limits, over all ranks: blocks, ops, and ops times blocks (the numbers that are kept).
inline constexpr int kMostBlocks = 1 << 12;
inline constexpr int kMostOps = 1 << 16;
inline constexpr int kMostClocks = 1 << 26;

/// Fills in the lanes of `plan`, whose ranks have their scratch. All numbers of `gpus` are in
/// range. Each block becomes a lane. Each access to a peer's memory becomes a message; its other
/// end is in a lane of that peer, one for each block that uses its memory. A step comes after those
/// that use the same memory and are known to come first, by signals, barriers and packets. Ops that
/// wait for ever are left out: the verifier finds what is missing then. Throws `unavailable` for an
/// op that reads or writes the memory of one peer twice.
void write_lanes(const std::vector<Gpu>& gpus, FilePlan& plan);

}  // namespace tutti::collectives::mscclpp
