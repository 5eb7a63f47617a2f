// Runs schedules on real numbers, lanes in a random order: a second opinion on what the verifier
// says, with lengths, odd cuts and memory that is really shared.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <tutti/schedule.hpp>

namespace tutti::testing {

struct InterpretOptions {
  int count = 0;             ///< Elements of the vector (whole) or of one block (blocks).
  int message_elements = 0;  ///< The most that a message holds; at least `widest`.
  int window = 2;
  int operations = 2;
  bool in_place = false;
  std::uint64_t seed = 0;
};

/// What went wrong, or empty: stuck, lengths that differ at the two ends of a channel, a result
/// that is wrong on any rank, bits that differ between ranks, an input that has changed.
std::string interpret(std::span<const Schedule> schedules, const InterpretOptions& options);

}  // namespace tutti::testing
