// tutti: what a call may be told beside its buffers, and what calls tell back.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti {

class Group;
struct PlanRequest;
struct Schedule;

/// An algorithm of the program's own, written with tutti/schedule.hpp: for each request one rank's
/// schedule, a function of the request alone.
using Planner = std::function<Schedule(const PlanRequest&)>;

/// An entry for each rank.
using PerRank = std::span<const std::size_t>;

/// For recv: a message from whatever rank, with whatever tag.
inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;

/// What a recv got.
struct Received {
  int source = kAnySource;
  int tag = kAnyTag;
  std::size_t count = 0;  ///< Elements; at most those that were asked for.
};

/// Options of one call.
struct CallOptions {
  /// Deadline of this call; 0: the configuration's. Ending it fails the communicator. A collective
  /// that is queued behind others has all of it once they have ended and it begins; a send or
  /// receive begins at once.
  std::chrono::milliseconds timeout{0};
  /// By name; empty: chosen. One that cannot serve the call is `usage`. Must agree among ranks.
  /// Valid until the call returns.
  std::string_view algorithm = {};
  /// For premul_sum, which needs it: one element of the call's type, by which this rank's input is
  /// multiplied. May differ among ranks. Copied before the call returns.
  const void* premultiplier = nullptr;
  Accumulate accumulate = Accumulate::as_configured;  ///< Must agree among ranks.
  Group* group = nullptr;        ///< The call is made when the group ends; it returns at once.
  Received* received = nullptr;  ///< recv: written before it has ended, and valid until then.
  /// Of a blocking call: asked in its thread before it sleeps, and ten times a second while it
  /// does. True aborts the communicator. For what a language does between two steps, such as
  /// Ctrl-C.
  bool (*interrupted)() = nullptr;
};

/// What one algorithm would take for a call; see Communicator::prices.
struct AlgorithmPrice {
  std::string algorithm;
  std::size_t message_bytes = 0;       ///< The largest message that it would be given.
  std::optional<double> predicted_us;  ///< None: so many ranks are not priced.
  bool chosen = false;                 ///< By a call that names none.
};

/// Where the time of creating a communicator went.
struct StartupPhase {
  std::string name;
  std::chrono::nanoseconds duration;
};

/// For Communicator::split: in none of the new communicators.
inline constexpr int kNoColor = -1;

}  // namespace tutti
