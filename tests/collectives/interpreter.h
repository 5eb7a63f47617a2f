// Runs schedules on real numbers, with the lanes in a random order. This checks the verdicts of the
// verifier independently, and adds lengths, uneven pieces and memory that is really shared.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <tutti/schedule.hpp>

namespace tutti::testing {

struct InterpretOptions {
  int count = 0;             ///< Elements of the vector (whole) or of one block (blocks).
  int message_elements = 0;  ///< Capacity of a message; at least `widest`.
  int window = 2;
  int operations = 2;
  bool in_place = false;
  std::uint64_t seed = 0;
};

/// Returns an empty string, or what went wrong: no lane can advance, the two ends of a channel
/// expect different lengths, a rank has a wrong result, bits differ between ranks, or an input has
/// changed.
std::string interpret(std::span<const Schedule> schedules, const InterpretOptions& options);

}  // namespace tutti::testing
