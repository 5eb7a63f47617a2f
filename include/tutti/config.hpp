// tutti: every knob, as a plain struct. docs/configuration.md and `tutti-info --config` list them
// with their ranges.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <tutti/export.hpp>
#include <tutti/types.hpp>

namespace tutti {

enum class LogLevel { error, warn, info, debug };

/// What partial sums and products of floats are held in from one rank to the next.
enum class Accumulate {
  as_configured,  ///< In a call: what the configuration says.
  step,  ///< In the type: computed in f32 and rounded in each step, on each rank that adds to it.
  f32,   ///< Of 16- and 8-bit floats, in f32: rounded once, when the result is stored. Messages are
         ///< 2 or 4 times as long.
  reproducible,  ///< There are none: all summands are added up in one step, in integers. A sum is a
                 ///< function of their multiset alone, whatever the ranks' order, the algorithm and
                 ///< the message size (docs/numerics.md).
};

/// Takes one line of the log, without its newline. Called from any thread, never concurrently; must
/// not call tutti.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// A call for which an algorithm is chosen.
struct SelectQuery {
  Collective what = Collective::all_reduce;
  DataType type = DataType::f32;  ///< Of a program's own reduction: uint8.
  Op op = Op::sum;
  int root = 0;
  std::size_t count = 0;  ///< As the call has it; 0 where ranks know different lengths.
  std::size_t bytes = 0;  ///< Of `count` elements.
  int ranks = 1;
  Accumulate accumulate = Accumulate::step;  ///< As the call has it, or the configuration.
};

/// A program's own choice: an algorithm's name, or nothing to leave it to tutti. A function of the
/// query alone, the same on every rank; where ranks come to different algorithms, the call ends
/// with `mismatch`. Asked when a call of a new kind is planned, in the calling thread; must not
/// call tutti. A name that cannot serve the call is `usage`, and so is what it throws.
using Select = std::function<std::string(const SelectQuery&)>;

/// Defaults here; then a file (TUTTI_CONFIG_FILE), then TUTTI_* variables, then what the program
/// sets.
struct Config {
  std::string config_file;          ///< The file that from_env() read; setting it reads nothing.
  std::string transports = "auto";  ///< Comma-separated, in order of preference.
  std::string algorithm =
      "auto";     ///< One algorithm for every call that knows it. Must agree among ranks.
  Select select;  ///< Goes before `algorithm`; a call's own option goes before both.
  std::string tuning_file = "auto";  ///< What this machine costs: a path; auto: where tutti-perf
                                     ///< --tune keeps it; none. Rank 0's counts.
  Accumulate accumulate = Accumulate::step;  ///< Of calls that do not say. Must agree among ranks.
  std::chrono::milliseconds timeout{300'000};  ///< Deadline of an operation that is given none.
  std::chrono::milliseconds stall{10'000};     ///< What takes longer is told in the log; 0: never.
  std::chrono::milliseconds startup_timeout{300'000};  ///< Deadline of creating a communicator.
  int threads = 0;     ///< Of a rank in a large blocking call; 0: by cores. Must agree among ranks.
  int group_size = 0;  ///< Consecutive ranks that algorithms by groups take for a host's; 0: about
                       ///< the square root of all. Must agree among ranks.
  std::size_t message_bytes =
      0;  ///< Largest message; 0: sized from the caches. Must agree among ranks.
  std::size_t ring_bytes = 0;  ///< Data bytes of a channel in memory; 0: sized from the caches.
  std::string bind = "none";   ///< Cpus of each rank of this machine. Must agree among ranks.
  std::string store = "auto";  ///< Where ranks find each other: auto, tcp:// or file:// URL.
  std::string interfaces = "auto";  ///< For TCP between ranks: prefixes of their names, ^ excludes.
  std::string secret;               ///< What the job's processes know; never shown.
  std::string secret_file;          ///< A file that holds it, where `secret` is empty.
  bool trust_network = false;       ///< Everybody who reaches this job's ports may join it.
  bool checksum = false;            ///< CRC-32C of all that goes over TCP. Must agree among ranks.
  bool tls = false;                 ///< TLS 1.3 of all that goes over TCP. Must agree among ranks.
  int spin_polls = -1;              ///< Polls before a wait yields; -1: by ranks and cores.
  LogLevel log_level = LogLevel::warn;
  LogSink log_sink;  ///< Empty: standard error.

  /// Defaults, then the file, then the environment. Throws `usage` for an unknown TUTTI_ variable
  /// (it names the nearest known one) and for a value out of its range.
  TUTTI_API static Config from_env();
};

}  // namespace tutti
