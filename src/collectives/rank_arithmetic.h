// Who is my neighbour, which chunk at stage s: pure functions of small numbers, tested for every
// rank count to 64.
#pragma once

#include <bit>
#include <vector>

namespace tutti::collectives {

/// `number` modulo `ranks`, never negative.
constexpr int wrap(int number, int ranks) { return (number % ranks + ranks) % ranks; }

/// All other ranks, nearest successor first: when every rank goes through its list at the same
/// pace, no rank is everybody's target at once.
std::vector<int> others(int rank, int ranks);

// --- ring: 0 -> 1 -> ... -> ranks-1 -> 0 ---

constexpr int ring_next(int rank, int ranks) { return wrap(rank + 1, ranks); }
constexpr int ring_previous(int rank, int ranks) { return wrap(rank - 1, ranks); }

/// The chunk that passes `rank` at stage `stage`, when each rank starts with the chunk of its own
/// number and hands on what it has just received: a rank's chunk at stage s is its predecessor's at
/// s - 1.
constexpr int ring_chunk(int rank, int stage, int ranks) { return wrap(rank - stage, ranks); }

}  // namespace tutti::collectives
