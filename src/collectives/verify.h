// The verifier: runs all ranks' schedules on symbols instead of bytes and proves them complete,
// race-free and deadlock-free under the channels' window.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <tutti/schedule.hpp>

namespace tutti {

struct VerifyOptions {
  int window = 2;      ///< Messages that a channel holds: the least that any transport offers.
  int pieces = 3;      ///< Consecutive pieces of each operation: scratch and slots are reused.
  int operations = 2;  ///< Consecutive operations without a barrier between them.
  bool in_place = false;
};

/// What the verifier found. `ok` is a proof (lanes are sequential and channels have one reader and
/// one writer, so every order of execution ends alike: Kahn 1974); otherwise `why` is a
/// counter-example that names rank, lane, step and chunk.
struct Verdict {
  bool ok = true;
  std::string why;
};

/// `schedules[r]` is rank r's. Rejects: malformed schedules, missing or double contributions, races
/// between lanes that no `after` orders, deadlock, messages whose size or order differs at the two
/// ends, cuts that differ between ranks, all_reduce results whose bits would differ between ranks,
/// steps that complete twice or never.
Verdict verify(std::span<const Schedule> schedules, const VerifyOptions& options);

}  // namespace tutti
