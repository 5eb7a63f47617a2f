// A schedule for people (text) and for programs (JSON). Prints anything, well-formed or not: who
// writes an algorithm wants to see what the verifier rejects.
#pragma once

#include <string>

#include <tutti/schedule.hpp>

namespace tutti {

/// A heading, then a line for each lane and each of its steps:
///
///     all_reduce, rank 1 of 2: 2 chunks of the whole vector, no scratch, widest step 1
///     lane 0, sends on channel 0
///       0  chunk 1: input[1] -> rank 0
///     lane 1, receives on channel 0, sends on channel 1
///       0  chunk 0: rank 0 + input[0] -> output[0], rank 0; completes
std::string to_text(const Schedule& schedule);

/// One object, its fields named as those of Schedule, enumerators by name, `after` null where there
/// is none; a line for each step.
std::string to_json(const Schedule& schedule);

std::string to_text(const Operand& operand);    ///< "output[3]", or "rank 3" for a peer.
std::string chunks_text(int chunk, int count);  ///< "chunk 3", "chunks 3 to 5".

}  // namespace tutti
