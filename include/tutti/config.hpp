// tutti: all settings, as a plain struct. docs/configuration.md and `tutti-info --config` list them
// with their ranges.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include <tutti/export.hpp>
#include <tutti/types.hpp>

namespace tutti {

enum class LogLevel { error, warn, info, debug };

/// The format that holds partial sums and products of floats between ranks.
enum class Accumulate {
  as_configured,  ///< The configuration's; for the options of a call.
  step,  ///< The element type: each step computes in f32 and rounds, on each rank that adds to the
         ///< result.
  f32,   ///< f32 for 16-bit and 8-bit floats: the result is rounded once, when it is stored.
         ///< Messages are 2 or 4 times as long.
  reproducible,  ///< There are no partial results: one step adds up all summands, in integers. A
                 ///< sum depends on the multiset of the summands alone, not on the order of ranks,
                 ///< the algorithm or the message size (docs/numerics.md).
};

/// Receives one line of the log, without its newline. Any thread calls it, one at a time. It must
/// not call tutti.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Describes a call for which an algorithm is chosen.
struct SelectQuery {
  Collective what = Collective::all_reduce;
  DataType type = DataType::f32;  ///< uint8 for a program's own reduction.
  Op op = Op::sum;
  int root = 0;
  std::size_t count = 0;  ///< The call's count; 0 if ranks know different lengths.
  std::size_t bytes = 0;  ///< Size of `count` elements.
  int ranks = 1;
  Accumulate accumulate = Accumulate::step;  ///< The call's, or else the configuration's.
};

/// A program's own choice of an algorithm: it returns a name, or "" to let tutti choose. It must
/// depend on the query alone and return the same on every rank; if ranks come to different
/// algorithms, the call fails with `mismatch`. It is called when a call of a new kind is planned,
/// in the calling thread, and must not call tutti. A name that cannot serve the call is `usage`,
/// and so is an exception.
using Select = std::function<std::string(const SelectQuery&)>;

/// The settings. A value is the default below, unless a file (TUTTI_CONFIG_FILE), then a TUTTI_*
/// variable, then the program sets it. Settings marked "Must agree" must be the same on all ranks.
struct Config {
  std::string config_file;  ///< The file that from_env() read; setting it reads nothing.
  /// Comma-separated names, in order of preference; auto: the cheapest for each two ranks. Must
  /// agree.
  std::string transports = "auto";
  std::string algorithm = "auto";  ///< One algorithm for every call that it can serve. Must agree.
  Select select;  ///< Takes precedence over `algorithm`; a call's option over both.
  /// A file of schedules, or a folder of them: MSCCL's XML, plans of MSCCL++, or tutti's JSON
  /// (docs/planning.md). Each serves calls in its window of sizes that name no algorithm, if
  /// `algorithm` is auto. Empty: none. The files must be the same on all ranks.
  std::string schedules;
  /// File with the measured costs of this machine: a path, none, or auto for where tutti-perf
  /// --tune keeps it. All ranks use rank 0's.
  std::string tuning_file = "auto";
  /// NCCL's topology XML of this machine, in place of what is discovered: the GPUs of ranks follow
  /// each other around its best ring (docs/planning.md). Empty: none.
  std::string topology_file;
  Accumulate accumulate = Accumulate::step;    ///< For calls that do not say. Must agree.
  std::chrono::milliseconds timeout{300'000};  ///< Deadline of an operation without one of its own.
  std::chrono::milliseconds stall{10'000};  ///< Operations that take longer are logged; 0: none is.
  std::chrono::milliseconds startup_timeout{300'000};  ///< Deadline of creating a communicator.
  int threads = 0;  ///< Threads that a rank uses in a large blocking call; 0: depends on the cores.
                    ///< Must agree.
  int group_size = 0;  ///< Consecutive ranks that algorithms with groups take for those of a host;
                       ///< 0: about the square root of all. Must agree.
  std::size_t message_bytes = 0;  ///< Largest message; 0: depends on the caches. Must agree.
  std::size_t ring_bytes = 0;     ///< Data bytes of a channel in memory; 0: depends on the caches.
  /// The GPU that runs this rank's collectives: its number; rank, for the number of the rank among
  /// all GPUs in turn; or none, if the host runs them. Must be none on all ranks or on none.
  std::string device = "none";
  std::string bind = "none";   ///< CPUs of each rank of this machine. Must agree.
  std::string store = "auto";  ///< Where ranks find each other: auto, a tcp:// or a file:// URL.
  std::string interfaces = "auto";  ///< For TCP: prefixes of the interfaces' names; ^ excludes.
  /// For RDMA: prefixes of the devices' names; ^ excludes. The first port that is up is used.
  std::string rdma_devices = "auto";
  int rdma_paths = 0;          ///< Queue pairs to each peer over RDMA; 0: one for each port.
  int rdma_gid_index = -1;     ///< -1: RoCE version 2 and an address of IPv4 where there are any.
  int rdma_traffic_class = 0;  ///< Of packets over RDMA, as routers and switches see it.
  int rdma_service_level = 0;  ///< Of InfiniBand; the priority over RoCE.
  int rdma_pkey_index = 0;     ///< Number of the partition key in the port's table.
  std::string secret;       ///< The secret by which processes of the job authenticate. Never shown.
  std::string secret_file;  ///< A file with the secret; used if `secret` is empty.
  /// Lets every process that can reach the job's ports join it, if there is no secret.
  bool trust_network = false;
  bool checksum = false;        ///< Protects all data over TCP with CRC-32C. Must agree.
  bool tls = false;             ///< Uses TLS 1.3 on all TCP connections. Must agree.
  int spin_polls = -1;          ///< Polls before a wait yields; -1: depends on ranks and cores.
  int trace_operations = 4096;  ///< Operations of each communicator that the flight recorder keeps.
  std::string trace_dir;  ///< The folder for the records of a communicator that fails; empty: none.
  std::string trace_signal = "none";  ///< USR1 or USR2: the signal that asks for such records.
  LogLevel log_level = LogLevel::warn;
  LogSink log_sink;  ///< Lines go to standard error if it is empty.

  /// The value that somebody has given a setting, as text.
  struct Origin {
    std::string source;  ///< "environment", "/etc/tutti.conf:3" or "program".
    std::string value;
  };
  /// Holds, by name, the settings that a file, the environment or set() has changed.
  std::map<std::string, Origin, std::less<>> origins;

  /// Sets the setting `name` to the value of `text`, as the line `name = text` in a file does:
  /// set("timeout_ms", "60000"). Throws `usage` for an unknown name (the message names the
  /// nearest known one) and for a value that is out of its range.
  TUTTI_API Config& set(std::string_view name, std::string_view text);

  /// Reads the defaults, then the file, then the environment. Throws `usage` for an unknown TUTTI_
  /// variable, with the nearest known name, and for a value out of its range.
  TUTTI_API static Config from_env();
};

}  // namespace tutti
