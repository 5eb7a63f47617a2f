// tutti: options of a call, and what a call reports.
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
struct UserReduction;

/// An algorithm of the program's own, written with tutti/schedule.hpp: it returns one rank's
/// schedule for each request, and must depend on the request alone.
using Planner = std::function<Schedule(const PlanRequest&)>;

/// One entry for each rank.
using PerRank = std::span<const std::size_t>;

/// Makes recv accept a message from any rank, or with any tag.
inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;
static_assert(kAnySource < 0 && kAnyTag < 0, "neither is a rank or a tag");

/// The message that a recv received.
struct Received {
  int source = kAnySource;
  int tag = kAnyTag;
  std::size_t count = 0;  ///< Number of elements, at most the number asked for.
};

/// Ends the calls of the thread that has made it, soon after a function has returned true, for as
/// long as it exists. It is for what a language does between two steps, such as handling Ctrl-C.
///
/// Calls that wait call the function before they sleep, and at least ten times a second while they
/// sleep, until it has returned true. A call of a communicator then aborts the communicator, and so
/// does its end, if asynchronous calls are pending; making a communicator, and a wait at a store,
/// end with `peer_lost`. Communicator::shrink(), grow() and agree() are not interrupted, since
/// ranks decide them together: they end when their patience does. Of several in a thread the one
/// that was made last counts, and they must end in the reverse order.
class TUTTI_API Interruptible {
 public:
  /// `interrupted` must neither throw nor call tutti. Calls are not interrupted if it is null.
  explicit Interruptible(bool (*interrupted)()) noexcept;
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  friend bool can_be_interrupted() noexcept;
  friend bool is_interrupted();

  bool (*const interrupted_)();
  Interruptible* const outer_;
  bool said_so_ = false;  // The function has returned true.
};

/// Options of one call.
struct CallOptions {
  /// Deadline of this call; 0 means the configuration's. If it passes, the communicator has failed.
  /// The time of a collective that is queued behind others counts from when those have ended and it
  /// begins; that of a send or receive counts from the call.
  std::chrono::milliseconds timeout{0};
  /// The algorithm's name; if empty, the library chooses. An algorithm that cannot serve the call
  /// is `usage`. Must agree among ranks. The text must be valid until the call returns.
  std::string_view algorithm = {};
  /// One element of the call's type, by which this rank's input is multiplied. Required for
  /// premul_sum. May differ among ranks. Copied before the call returns.
  const void* premultiplier = nullptr;
  Accumulate accumulate = Accumulate::as_configured;  ///< Must agree among ranks.
  Group* group = nullptr;  ///< If set, the call returns at once and starts when the group ends.
  Received* received = nullptr;  ///< Set by recv before the call ends; must be valid until then.
  /// A reduction of the program's own (tutti/reduction.hpp) in place of the call's type and op,
  /// which then have no meaning: counts and displacements are in elements of this reduction. It is
  /// used until the call is done; that of a persistent call, as long as the call lives. Ranks
  /// compare its name and the size of its elements. What its function throws is `usage` here and on
  /// the peers, and ends the communicator.
  const UserReduction* reduction = nullptr;
  /// The GPU's stream by which the call is ordered, a cudaStream_t or CUstream; see docs/gpu.md.
  /// Null is the default stream where a buffer lies on a GPU. If the stream is being captured, the
  /// call becomes a part of the CUDA graph, and returns at once.
  void* stream = nullptr;
};

/// The predicted time of a call with one algorithm; see Communicator::prices.
struct AlgorithmPrice {
  std::string algorithm;
  std::size_t message_bytes = 0;       ///< The largest message that the call would use.
  std::optional<double> predicted_us;  ///< Microseconds; empty if so many ranks are not priced.
  bool chosen = false;                 ///< Whether a call that names no algorithm uses this one.
};

/// One phase of creating a communicator, and how long it took.
struct StartupPhase {
  std::string name;
  std::chrono::nanoseconds duration;
};

/// Passed to Communicator::split by a rank that belongs to none of the new communicators.
inline constexpr int kNoColor = -1;
static_assert(kNoColor < 0, "colors are not negative");

}  // namespace tutti
