#include "common/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>

#include <tutti/error.hpp>

#include "common/knobs.h"
#include "common/secret.h"
#include "common/text.h"

namespace tutti {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr std::string_view kPrefix = "TUTTI_";
constexpr std::string_view kTestPrefix = "TUTTI_TEST_";
constexpr std::string_view kFileKnob = "config_file";
constexpr std::string_view kEnvironment = "environment", kProgram = "program";
// With fewer, two messages might not fit; see transport/ring/ring.h.
constexpr std::size_t kMessagesInARing = 3;
constexpr std::size_t kLeastMessage = 4 << 10, kMostMessage = 64 << 20, kMostRing = 1 << 30;

/// A row of the table. To add a setting, add its member to tutti::Config, its row here, and its
/// line in docs/configuration.md, for which a test asks. Files, the environment, the C ABI and
/// Python take the setting from the row.
struct Knob {
  /// For example "timeout_ms", which is the name in a file; the environment variable is
  /// TUTTI_TIMEOUT_MS.
  std::string_view name;
  KnobKind kind;
  bool agree;  ///< Ranks refuse to start together if their values differ.
  std::string_view sentence;

  std::string variable() const;
  std::string write(const Config& config) const {
    return std::visit([&](const auto& k) { return k.write(config); }, kind);
  }
  std::string range() const {
    return std::visit([](const auto& k) { return k.range(); }, kind);
  }
  /// Returns whether the value must not appear in any message; write() hides it.
  bool is_secret() const noexcept;
};

constexpr ChoiceKnob<bool>::Choice kSwitch[] = {
    {"yes", true}, {"no", false}, {"1", true}, {"0", false}};
constexpr ChoiceKnob<Accumulate>::Choice kAccumulations[] = {
    {"step", Accumulate::step},
    {"f32", Accumulate::f32},
    {"reproducible", Accumulate::reproducible}};
constexpr ChoiceKnob<LogLevel>::Choice kLogLevels[] = {{"error", LogLevel::error},
                                                       {"warn", LogLevel::warn},
                                                       {"info", LogLevel::info},
                                                       {"debug", LogLevel::debug}};
constexpr std::string_view kSecretForm = "16 bytes or more";
static_assert(kLeastSecretBytes == 16);
constexpr std::string_view kSwitchNames = "yes or no (1 or 0)";

constexpr bool kAgree = true, kOwn = false;
constexpr std::array kKnobs{
    Knob{"config_file", TextKnob{&Config::config_file, parse_any, "a path"}, kOwn,
         "A file of `name = value` lines, read before the environment."},
    Knob{"transports",
         TextKnob{&Config::transports, parse_names, "auto, or names with commas between"}, kAgree,
         "Transports to use, in order of preference; auto: for each two ranks the cheapest that "
         "joins them."},
    Knob{"algorithm", TextKnob{&Config::algorithm, parse_name, "auto, or a name"}, kAgree,
         "One algorithm for every call that knows it."},
    Knob{"schedules", TextKnob{&Config::schedules, parse_any, "a path"}, kOwn,
         "A file of schedules, or a folder of them, which serve the calls in their window of sizes "
         "where nothing names an algorithm."},
    Knob{"tuning_file", TextKnob{&Config::tuning_file, parse_any, "auto, none or a path"}, kOwn,
         "What this machine costs, by which algorithms are chosen; auto: where tutti-perf --tune "
         "keeps it. Rank 0's counts."},
    Knob{"topology_file", TextKnob{&Config::topology_file, parse_any, "a path"}, kOwn,
         "NCCL's topology XML of this machine, or a fabric's JSON, in place of what is discovered: "
         "for the order of GPUs in rings (with TUTTI_DEVICE; else it is not read), tutti-plan show "
         "and synthesize."},
    Knob{"accumulate",
         ChoiceKnob<Accumulate>{&Config::accumulate, kAccumulations, "step, f32 or reproducible"},
         kAgree,
         "Partial sums of floats: rounded in each step; 16- and 8-bit ones in f32 to the end; or "
         "so that no order of ranks and no algorithm changes a bit."},
    Knob{"threads", CountKnob{&Config::threads, 0, 8}, kAgree,
         "Of a rank in a large blocking call on one machine; 0: as many as it has cores for."},
    Knob{"timeout_ms", TimeKnob{&Config::timeout, milliseconds(1), hours(24)}, kOwn,
         "Deadline of an operation that is given none."},
    Knob{"stall_ms", TimeKnob{&Config::stall, milliseconds(0), hours(24)}, kOwn,
         "An operation that takes longer is told in the log: who is missing, who waits for whom; "
         "0: never."},
    Knob{"startup_timeout_ms", TimeKnob{&Config::startup_timeout, milliseconds(1), hours(24)}, kOwn,
         "Deadline of creating a communicator."},
    Knob{
        "group_size", CountKnob{&Config::group_size, 0, 1'000'000}, kAgree,
        "Consecutive ranks that hierarchical takes for a host's; 0: about the square root of all."},
    Knob{"message_bytes", BytesKnob{&Config::message_bytes, kLeastMessage, kMostMessage, 64},
         kAgree, "Largest message; 0: sized from the caches."},
    Knob{"ring_bytes",
         BytesKnob{&Config::ring_bytes, kMessagesInARing* kLeastMessage, kMostRing, 64}, kAgree,
         "Data bytes of a channel in memory, at least 3 messages; 0: by the caches of a core and "
         "the "
         "number of its ranks (192K with 2M of L2; 1536K with AMD's 1M)."},
    Knob{
        "device", TextKnob{&Config::device, parse_device, "none, rank, or a number from 0 on"},
        kOwn,
        "The GPU whose kernels run this rank's collectives; rank: the GPUs in turn; none: the host "
        "runs them. All ranks name one, or none does."},
    Knob{"bind",
         TextKnob{&Config::bind, parse_binding, "none, auto, or cpus of each rank, as 0-3,4-7"},
         kAgree,
         "Cpus of the thread that makes a communicator, and of those it starts from then on."},
    Knob{"store", TextKnob{&Config::store, parse_store, "auto, tcp://host:port or file:///path"},
         kOwn, "Where ranks find each other; auto: as the launcher says."},
    Knob{"interfaces",
         TextKnob{&Config::interfaces, parse_interfaces,
                  "auto, or prefixes as eth0,ib or ^docker,lo"},
         kOwn,
         "Network interfaces for data between machines, by the start of their names; all that are "
         "up."},
    Knob{"rdma_devices",
         TextKnob{&Config::rdma_devices, parse_interfaces,
                  "auto, or prefixes as mlx5_0,rxe or ^mlx4"},
         kOwn, "RDMA devices, by the start of their names; all ports that are up are used."},
    Knob{"rdma_paths", CountKnob{&Config::rdma_paths, 0, 8}, kOwn,
         "Queue pairs to each peer, over all ports; 0: one for each port, 4 at most."},
    Knob{"rdma_gid_index", CountKnob{&Config::rdma_gid_index, -1, 255}, kOwn,
         "The number of the port's GID; -1: one of RoCE version 2 and IPv4 where there is any."},
    Knob{"rdma_traffic_class", CountKnob{&Config::rdma_traffic_class, 0, 255}, kOwn,
         "The traffic class of packets over RDMA, by which networks tell kinds of traffic apart."},
    Knob{"rdma_service_level", CountKnob{&Config::rdma_service_level, 0, 15}, kOwn,
         "The service level of packets over RDMA: a virtual lane or priority."},
    Knob{"rdma_pkey_index", CountKnob{&Config::rdma_pkey_index, 0, 127}, kOwn,
         "The number of the partition key in the port's table."},
    Knob{"secret", TextKnob{&Config::secret, parse_secret, kSecretForm, true}, kOwn,
         "What the processes of a job know, to prove themselves to each other between machines."},
    Knob{"secret_file", TextKnob{&Config::secret_file, parse_any, "a path"}, kOwn,
         "A file with the secret, where `secret` is not set; others must not be able to read it."},
    Knob{"trust_network", ChoiceKnob<bool>{&Config::trust_network, kSwitch, kSwitchNames}, kOwn,
         "Without a secret: everybody who reaches the job's ports may join it."},
    Knob{"checksum", ChoiceKnob<bool>{&Config::checksum, kSwitch, kSwitchNames}, kAgree,
         "CRC-32C of all data that goes over the transport `tcp`: bytes that change on their way "
         "are an "
         "error. RDMA and UCX have their devices' own checks alone."},
    Knob{"tls", ChoiceKnob<bool>{&Config::tls, kSwitch, kSwitchNames}, kAgree,
         "TLS 1.3 on all TCP connections of the job, with keys from its secret."},
    Knob{"spin_polls", CountKnob{&Config::spin_polls, -1, 1'000'000'000}, kOwn,
         "Polls before a wait yields; -1: by ranks and cores."},
    Knob{"trace_operations", CountKnob{&Config::trace_operations, 64, 1 << 20}, kOwn,
         "Operations of each communicator that the flight recorder keeps, up to a power of two."},
    Knob{"trace_dir", TextKnob{&Config::trace_dir, parse_any, "a path"}, kOwn,
         "A folder, for the last operations of each rank when a communicator fails; tutti-trace "
         "reads them."},
    Knob{"trace_signal", TextKnob{&Config::trace_signal, parse_signal, "none, USR1 or USR2"}, kOwn,
         "A signal that dumps them while the program runs, unless the program handles it itself."},
    Knob{"log_level",
         ChoiceKnob<LogLevel>{&Config::log_level, kLogLevels, "error, warn, info or debug"}, kOwn,
         "The least urgent lines that are logged."},
};
// Each name stands for one setting.
static_assert([] {
  for (std::size_t i = 0; i < kKnobs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (kKnobs[i].name == kKnobs[j].name) return false;
  return true;
}());

std::string Knob::variable() const {
  std::string out(kPrefix);
  for (const char c : name) out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

bool Knob::is_secret() const noexcept {
  const auto* const text = std::get_if<TextKnob>(&kind);
  return text != nullptr && text->secret;
}

const Knob* find_knob(std::string_view name) {
  const auto found = std::find_if(kKnobs.begin(), kKnobs.end(),
                                  [&](const Knob& knob) { return knob.name == name; });
  return found == kKnobs.end() ? nullptr : &*found;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Says which setting `name` may have been meant for, or where all of them are listed if it is not
// like any. The beginning of a setting's name is meant for that one. `show` returns the text by
// which the setting is called.
template <typename Show>
std::string meant_for(std::string_view name, Show show) {
  const auto distance = [&](const Knob& knob) {
    const bool cut = !name.empty() && knob.name.starts_with(name);
    return cut ? 0 : edit_distance(knob.name, name);
  };
  const Knob& nearest =
      *std::min_element(kKnobs.begin(), kKnobs.end(),
                        [&](const Knob& a, const Knob& b) { return distance(a) < distance(b); });
  // Names that have nothing to do with each other share about half of their letters by chance.
  return distance(nearest) <= std::max<std::size_t>(nearest.name.size() / 3, 1)
             ? fmt::format("the nearest is {}", show(nearest))
             : "tutti-info --config lists all of them";
}

std::string name_shown(const Knob& knob) { return std::string(knob.name); }

[[noreturn]] void refuse(const Knob& knob, std::string_view called, std::string_view text,
                         std::string_view source) {
  throw Error(ErrorKind::usage,
              fmt::format("{} is {} (from {}); it must be {}", called,
                          text.empty()       ? "empty"
                          : knob.is_secret() ? "not shown"
                                             : shown(text),
                          source == kProgram ? "the program" : source, knob.range()));
}

/// `called` is the setting's name in an error, which may be that of the environment variable.
void set_from(const Knob& knob, std::string_view called, std::string_view text,
              std::string_view source, Config& into) {
  const bool good = !text.empty() &&
                    std::visit([&](const auto& kind) { return kind.read(text, into); }, knob.kind);
  if (!good) refuse(knob, called, text, source);
  into.origins.insert_or_assign(std::string(knob.name),
                                Config::Origin{std::string(source), knob.write(into)});
}

/// Returns where `knob` was set, or an empty text if it has not been set yet.
std::string_view source_of(const Knob& knob, const Config& config) {
  const auto found = config.origins.find(knob.name);
  return found == config.origins.end() ? std::string_view() : found->second.source;
}

void read_file(const std::string& path, Config& into) {
  const ConfigFile file = read_config_file(path);
  for (const FileLine& line : file.lines) {
    const std::string place = fmt::format("{}:{}", path, line.number);
    const Knob* const knob = find_knob(line.name);
    if (knob == nullptr)
      throw Error(ErrorKind::usage,
                  fmt::format("{}: unknown setting {}; {}", place, shown(line.name),
                              meant_for(line.name, name_shown)));
    if (line.name == kFileKnob)
      throw Error(ErrorKind::usage,
                  fmt::format("{}: a configuration file cannot name another one", place));
    if (const std::string_view before = source_of(*knob, into); !before.empty())
      throw Error(ErrorKind::usage, fmt::format("{}: {} is set already at {}; keep one line", place,
                                                line.name, before));
    if (knob->is_secret() && !file.why_not_private.empty())
      throw Error(ErrorKind::usage,
                  fmt::format("{}: a file that holds a secret: {}", place, file.why_not_private));
    set_from(*knob, line.name, line.value, place, into);
  }
}

void read_environment(Environment environment, Config& into) {
  for (const std::string_view entry : environment) {
    if (!entry.starts_with(kPrefix) || entry.starts_with(kTestPrefix)) continue;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;  // execve(2) passes on what is no variable, too
    const std::string_view variable = entry.substr(0, equals);
    const std::string name = lower(variable.substr(kPrefix.size()));
    const Knob* const knob = find_knob(name);
    if (knob == nullptr || knob->variable() != variable)
      throw Error(ErrorKind::usage,
                  fmt::format("unknown environment variable {}; {}", shown(variable),
                              meant_for(name, [](const Knob& each) { return each.variable(); })));
    // If a variable occurs twice, the first entry counts.
    if (source_of(*knob, into) == kEnvironment) continue;
    set_from(*knob, variable, entry.substr(equals + 1), kEnvironment, into);
  }
}

void check_ring_holds_messages(const Config& config) {
  if (config.ring_bytes == 0 || config.message_bytes == 0) return;
  if (config.ring_bytes / kMessagesInARing >= config.message_bytes) return;
  throw Error(ErrorKind::usage,
              fmt::format("ring_bytes is {} and message_bytes is {}: a ring must hold {} messages; "
                          "make ring_bytes at least {}, or leave one of them 0",
                          write_bytes(config.ring_bytes), write_bytes(config.message_bytes),
                          kMessagesInARing, write_bytes(kMessagesInARing * config.message_bytes)));
}

void check_signal_has_folder(const Config& config) {
  if (config.trace_signal != "none" && config.trace_dir.empty())
    throw Error(ErrorKind::usage,
                fmt::format("trace_signal is {}, and trace_dir is empty: say into which folder the "
                            "signal dumps the last operations",
                            config.trace_signal));
}

}  // namespace

Config& Config::set(std::string_view name, std::string_view text) {
  const Knob* const knob = find_knob(name);
  if (knob == nullptr)
    throw Error(ErrorKind::usage,
                fmt::format("unknown setting {}; {}", shown(name), meant_for(name, name_shown)));
  set_from(*knob, name, text, kProgram, *this);
  return *this;
}

Config resolve_config(Environment environment) {
  Config config;
  const std::string file_variable = find_knob(kFileKnob)->variable();
  if (const auto path = find(environment, file_variable); path && !path->empty())
    read_file(std::string(*path), config);
  read_environment(environment, config);
  check_ring_holds_messages(config);
  check_signal_has_folder(config);
  return config;
}

void check_config(const Config& config) {
  for (const Knob& knob : kKnobs) {
    Config scratch;
    const std::string text = knob.write(config);
    if (!std::visit([&](const auto& kind) { return kind.read(text, scratch); }, knob.kind))
      refuse(knob, knob.name, text, kProgram);
  }
  check_ring_holds_messages(config);
  check_signal_has_folder(config);
}

std::string agree_text(const Config& config) {
  std::string text;
  for (const Knob& knob : kKnobs)
    if (knob.agree) text += fmt::format("{}={}\n", knob.name, knob.write(config));
  return text;
}

std::vector<Setting> list_settings(const Config& config) {
  std::vector<Setting> settings;
  for (const Knob& knob : kKnobs) {
    const std::string value = knob.write(config), by_default = knob.write(Config{});
    const auto read = config.origins.find(knob.name);
    const bool was_read = read != config.origins.end();
    const bool as_read = value == (was_read ? read->second.value : by_default);
    settings.push_back({std::string(knob.name), knob.variable(), value, by_default, knob.range(),
                        !as_read   ? std::string(kProgram)
                        : was_read ? read->second.source
                                   : "default",
                        std::string(knob.sentence), knob.agree});
  }
  return settings;
}

Config Config::from_env() { return resolve_config(process_environment()); }

}  // namespace tutti
