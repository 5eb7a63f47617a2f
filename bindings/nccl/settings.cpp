#include "bindings/nccl/settings.h"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/nccl/algorithms.h"
#include "bindings/nccl/errors.h"
#include "bindings/nccl/process.h"
#include "common/files.h"

namespace tutti::nccl {
namespace {

// NCCL knows no deadline of a call, and programs rely on it where a rank computes for long.
constexpr std::chrono::hours kTimeout{24};
// Frameworks make a communicator at its first call, to which ranks come at different times.
constexpr std::chrono::minutes kStartupTimeout{30};

constexpr std::array<Variable, 19> kVariables{{
    {"NCCL_DEBUG", "the level of the log: VERSION, WARN, INFO or TRACE"},
    {"NCCL_DEBUG_FILE", "the file for the log; %h is the host's name, %p the process"},
    {"NCCL_SOCKET_IFNAME", "the network interfaces, as TUTTI_INTERFACES"},
    {"NCCL_COMM_ID", "host:port of the store, in place of ids that are handed on"},
    {"NCCL_COMM_BLOCKING", "0 or 1, for communicators whose configuration does not say"},
    {"NCCL_P2P_DISABLE", "1: no rings in the memory of GPUs"},
    {"NCCL_SHM_DISABLE", "1: ranks of one machine share no memory"},
    {"NCCL_ALGO", "Ring or Tree, for each collective"},
    {"NCCL_NET", "Socket: no RDMA between machines; IB: RDMA alone"},
    {"NCCL_IB_DISABLE", "1: no RDMA between machines"},
    {"NCCL_IB_HCA", "the RDMA devices, as TUTTI_RDMA_DEVICES"},
    {"NCCL_IB_GID_INDEX", "as TUTTI_RDMA_GID_INDEX"},
    {"NCCL_IB_TC", "as TUTTI_RDMA_TRAFFIC_CLASS"},
    {"NCCL_IB_SL", "as TUTTI_RDMA_SERVICE_LEVEL"},
    {"NCCL_IB_PKEY", "as TUTTI_RDMA_PKEY_INDEX"},
    {"NCCL_TOPO_FILE", "the topology of this machine, as TUTTI_TOPOLOGY_FILE"},
    {"NCCL_LAUNCH_MODE", "GROUP or PARALLEL, which are the same here"},
    {"NCCL_DEBUG_SUBSYS", "the log has no subsystems"},
    {nullptr, nullptr},
}};

// NCCL's variables, and the settings of tutti that each stands for.
constexpr std::array<std::array<const char*, 2>, 13> kStandsFor{
    {{"NCCL_SOCKET_IFNAME", "TUTTI_INTERFACES"},
     {"NCCL_IB_HCA", "TUTTI_RDMA_DEVICES"},
     {"NCCL_IB_GID_INDEX", "TUTTI_RDMA_GID_INDEX"},
     {"NCCL_IB_TC", "TUTTI_RDMA_TRAFFIC_CLASS"},
     {"NCCL_IB_SL", "TUTTI_RDMA_SERVICE_LEVEL"},
     {"NCCL_IB_PKEY", "TUTTI_RDMA_PKEY_INDEX"},
     {"NCCL_NET", "TUTTI_TRANSPORTS"},
     {"NCCL_IB_DISABLE", "TUTTI_TRANSPORTS"},
     {"NCCL_SHM_DISABLE", "TUTTI_TRANSPORTS"},
     {"NCCL_P2P_DISABLE", "TUTTI_TRANSPORTS"},
     {"NCCL_ALGO", "TUTTI_ALGORITHM"},
     {"NCCL_TOPO_FILE", "TUTTI_TOPOLOGY_FILE"},
     {"NCCL_DEBUG", "TUTTI_LOG_LEVEL"}}};

bool has_effect(std::string_view name) {
  return std::any_of(kVariables.begin(), kVariables.end(), [&](const Variable& known) {
    return known.name != nullptr && name == known.name;
  });
}

// The state that NCCL's interface keeps for the process.
struct ProcessState {
  std::optional<std::string> key;  // of ncclSetEncryption
  pid_t told = 0;  // the process that has been told of the variables without an effect
};

Locked<ProcessState>& process_state() { return of_process<ProcessState>(); }

void write_line(const Config& config, const std::string& line) {
  if (config.log_level < LogLevel::warn) return;
  if (config.log_sink)
    config.log_sink(LogLevel::warn, line);
  else
    std::fprintf(stderr, "tutti: %s\n", line.c_str());
}

// Returns whether the variable is 1, or `otherwise` if it is not set. NCCL takes any other number;
// the log says so.
bool is_set(const Config& config, const char* name, bool otherwise = false) {
  const auto value = variable(name);
  if (!value) return otherwise;
  if (*value != "0" && *value != "1")
    write_line(config, std::string(name) + " is '" + *value + "', which is neither 0 nor 1: it " +
                           "has no effect");
  return *value == "1" || (*value != "0" && otherwise);
}

std::string log_path(const std::string& pattern) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::string path;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char next = pattern[at] == '%' && at + 1 < pattern.size() ? pattern[at + 1] : '\0';
    if (next == 'h') path += host.data();
    if (next == 'p') path += std::to_string(getpid());
    if (next == 'h' || next == 'p')
      ++at;
    else
      path += pattern[at];
  }
  return path;
}

void read_log(Config& config) {
  if (const auto level = variable("NCCL_DEBUG"); level && !config.origins.contains("log_level")) {
    const auto is = [&](const char* name) { return strcasecmp(level->c_str(), name) == 0; };
    if (is("WARN") || is("VERSION")) config.log_level = LogLevel::warn;
    if (is("INFO")) config.log_level = LogLevel::info;
    if (is("TRACE") || is("ABORT")) config.log_level = LogLevel::debug;
  }
  if (const auto pattern = variable("NCCL_DEBUG_FILE"); pattern && !config.log_sink) {
    const std::string path = log_path(*pattern);
    const std::shared_ptr<std::FILE> file(open_to_write(path, O_CREAT | O_APPEND),
                                          [](std::FILE* its) {
                                            if (its != nullptr) std::fclose(its);
                                          });
    if (file == nullptr)
      return write_line(config, "NCCL_DEBUG_FILE: " + path + ": " + std::strerror(errno) +
                                    ": the log goes to the standard error");
    config.log_sink = [file](LogLevel, std::string_view line) {
      std::fprintf(file.get(), "%.*s\n", static_cast<int>(line.size()), line.data());
      std::fflush(file.get());
    };
  }
}

// NCCL's lists are eth0,ib or ^docker,lo. With = before it, names are whole, which prefixes cannot
// say; an RDMA device may be followed by a port.
std::string prefixes(std::string list) {
  std::erase(list, '=');
  std::string names;
  bool in_port = false;
  for (const char letter : list) {
    in_port = letter == ':' || (in_port && letter != ',');
    if (!in_port) names += letter;
  }
  return names;
}

void read_network(Config& config) {
  constexpr std::array<std::array<const char*, 2>, 6> kSame{
      {{"NCCL_SOCKET_IFNAME", "interfaces"},
       {"NCCL_IB_HCA", "rdma_devices"},
       {"NCCL_IB_GID_INDEX", "rdma_gid_index"},
       {"NCCL_IB_TC", "rdma_traffic_class"},
       {"NCCL_IB_SL", "rdma_service_level"},
       {"NCCL_IB_PKEY", "rdma_pkey_index"}}};
  for (const auto& [name, knob] : kSame)
    if (const auto value = variable(name);
        value && !prefixes(*value).empty() && !config.origins.contains(knob)) {
      config.set(knob, prefixes(*value));
    }
}

// Returns the topology file that the program's environment names, if there is one: NCCL goes on
// where there is none.
std::optional<std::string> topology_file(const Config& config) {
  const auto file = variable("NCCL_TOPO_FILE");
  if (!file || config.origins.contains("topology_file")) return std::nullopt;
  return file;
}

void read_topology(Config& config) {
  if (const auto file = topology_file(config); file && access(file->c_str(), R_OK) == 0)
    config.set("topology_file", *file);
}

// Records which ways between ranks the program's environment or configuration has taken away.
struct Ways {
  bool gpu_memory = true, shared_memory = true, rdma = true, tcp = true;
};

// Takes away what the name of NCCL's network does not mean.
void choose_network(const std::string& name, Ways& ways) {
  const bool sockets = strcasecmp(name.c_str(), "Socket") == 0;
  if (!sockets && strcasecmp(name.c_str(), "IB") != 0)
    throw Failure(ncclInvalidUsage, "the network '" + name +
                                        "' is a plug-in, which tutti's libnccl.so.2 does not "
                                        "load; it has Socket and IB");
  ways.rdma = ways.rdma && !sockets;
  ways.tcp = ways.tcp && sockets;
}

void apply(const Ways& ways, Config& config) {
  if (config.origins.contains("transports")) return;
  if (ways.gpu_memory && ways.shared_memory && ways.rdma && ways.tcp) return;
  std::string names;
  const auto add = [&names](bool there, const char* name) {
    if (there) names.append(names.empty() ? "" : ",").append(name);
  };
  add(ways.gpu_memory && ways.shared_memory, "cuda_ipc");
  add(ways.shared_memory, "shm");
  add(ways.rdma, "rdma");
  add(ways.tcp, "tcp");
  if (names.empty())
    throw Failure(ncclInvalidUsage, "NCCL's variables leave no way from one rank to another");
  config.transports = names;
}

Ways ways_of_environment(const Config& config) {
  Ways ways;
  ways.shared_memory = !is_set(config, "NCCL_SHM_DISABLE");
  ways.gpu_memory = !is_set(config, "NCCL_P2P_DISABLE");
  ways.rdma = !is_set(config, "NCCL_IB_DISABLE");
  if (const auto name = variable("NCCL_NET"); name) choose_network(*name, ways);
  return ways;
}

void tell_once(const Config& config) {
  {
    const std::lock_guard lock(process_state().mutex);
    if (std::exchange(process_state().value.told, getpid()) == getpid()) return;
  }
  if (const auto level = variable("NCCL_DEBUG");
      level && strcasecmp(level->c_str(), "VERSION") == 0)
    write_line(config, "libnccl.so.2 of tutti, for programs of NCCL 2.32");
  if (const auto file = topology_file(config); file && access(file->c_str(), R_OK) != 0)
    write_line(config, "NCCL_TOPO_FILE: " + *file + ": " + std::strerror(errno) +
                           ": this machine's own topology is used");
  std::string names;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry(*at);
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with("NCCL_") || has_effect(name)) continue;
    names.append(names.empty() ? "" : ", ").append(name);
  }
  if (!names.empty())
    write_line(config, "these variables have no effect on tutti's libnccl.so.2: " + names +
                           " (docs/nccl.md)");
}

// Fields of a program's struct, which may be shorter than ours.
class Fields {
 public:
  explicit Fields(const ncclConfig_t& given) {
    const std::size_t bytes = std::min(given.size, sizeof all_);
    std::memcpy(&all_, &given, bytes);
    all_.size = bytes;
  }
  // Returns the field if the header of the given version had it, else the value that means unset.
  template <typename T>
  T get(T ncclConfig_t::*field, unsigned since, T unset) const {
    const auto at =
        reinterpret_cast<std::uintptr_t>(&(all_.*field)) - reinterpret_cast<std::uintptr_t>(&all_);
    return all_.version >= since && at + sizeof(T) <= all_.size ? all_.*field : unset;
  }

 private:
  ncclConfig_t all_;
};

void check_range(int value, int least, int most, const char* name) {
  if (value != kUndefined && (value < least || value > most))
    throw Failure(ncclInvalidArgument, std::string("ncclConfig_t::") + name + " is " +
                                           std::to_string(value) + "; it is " +
                                           std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace

const Variable* known_variables() noexcept { return kVariables.data(); }

std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

const char* standing_for(std::string_view setting) noexcept {
  for (const auto& [name, ours] : kStandsFor) {
    const char* const value = std::getenv(name);
    if (setting == ours && value != nullptr && *value != '\0' && std::getenv(ours) == nullptr)
      return name;
  }
  return nullptr;
}

Settings settings_of_process() {
  Settings settings;
  Config& config = settings.config;
  config = Config::from_env();
  if (!config.origins.contains("timeout_ms")) config.timeout = kTimeout;
  if (!config.origins.contains("startup_timeout_ms")) config.startup_timeout = kStartupTimeout;
  read_log(config);
  tell_once(config);
  read_network(config);
  read_topology(config);
  apply(ways_of_environment(config), config);
  if (const auto choice = variable("NCCL_ALGO"); choice && !config.origins.contains("algorithm"))
    config.select = select_as(*choice);
  settings.blocking = is_set(config, "NCCL_COMM_BLOCKING", settings.blocking);
  const std::lock_guard lock(process_state().mutex);
  if (process_state().value.key) {
    config.tls = true;
    config.secret = *process_state().value.key;
  }
  return settings;
}

void apply(const ncclConfig_t* given, Settings& settings) {
  if (given == nullptr) return;
  constexpr std::size_t kFirst = offsetof(ncclConfig_t, cgaClusterSize);  // the struct of 2.14
  if (given->magic != kApiMagic || given->size < kFirst)
    throw Failure(ncclInvalidArgument, "the ncclConfig_t was not set by NCCL_CONFIG_INITIALIZER");
  const Fields fields(*given);
  const int blocking = fields.get(&ncclConfig_t::blocking, 0, kUndefined);
  const int least = fields.get(&ncclConfig_t::minCTAs, 21700, kUndefined);
  const int most = fields.get(&ncclConfig_t::maxCTAs, 21700, kUndefined);
  check_range(blocking, 0, 1, "blocking");
  check_range(fields.get(&ncclConfig_t::cgaClusterSize, 21700, kUndefined), 0, 8, "cgaClusterSize");
  check_range(least, 1, INT_MAX, "minCTAs");
  check_range(most, least == kUndefined ? 1 : least, INT_MAX, "maxCTAs");
  check_range(fields.get(&ncclConfig_t::splitShare, 21800, kUndefined), 0, 1, "splitShare");
  check_range(fields.get(&ncclConfig_t::shrinkShare, 22700, kUndefined), 0, 1, "shrinkShare");
  const char* const none = nullptr;
  const char* const net = fields.get(&ncclConfig_t::netName, 21700, none);
  if (net != nullptr) {
    Ways ways = ways_of_environment(settings.config);
    choose_network(net, ways);
    apply(ways, settings.config);
  }
  if (blocking != kUndefined) settings.blocking = blocking == 1;
}

void set_encryption(const ncclEncryptionConfig_t* config) {
  require(config != nullptr && config->magic == kApiMagic &&
              config->size >= sizeof(ncclEncryptionConfig_t),
          "the ncclEncryptionConfig_t was not set by NCCL_ENCRYPTION_CONFIG_INITIALIZER");
  require(config->mode == 0 || config->mode == 1, "ncclEncryptionConfig_t::mode is 0 or 1");
  constexpr std::size_t kLeastKeyBytes = 16;
  if (config->mode == 1)
    require(config->psk != nullptr && std::strlen(config->psk) >= kLeastKeyBytes,
            "ncclEncryptionConfig_t::psk is a key of 16 characters or more");
  const std::lock_guard lock(process_state().mutex);
  process_state().value.key =
      config->mode == 1 ? std::optional<std::string>(config->psk) : std::nullopt;
}

}  // namespace tutti::nccl
