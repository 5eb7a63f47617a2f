#include "rendezvous/launch/launch_environment.h"

#include <fmt/format.h>

#include <cassert>

#include <tutti/error.hpp>
#include <tutti/launch.hpp>

#include "common/address.h"
#include "common/random.h"
#include "common/text.h"
#include "rendezvous/launch/job_address.h"

namespace tutti {
namespace {

constexpr std::string_view kAdvice =
    "start the program with `tutti-run -n N -- program` or torchrun, which set RANK, WORLD_SIZE, "
    "LOCAL_RANK, MASTER_ADDR and MASTER_PORT, or with a launcher that speaks PMIx (mpirun of Open "
    "MPI, srun, prun)";

constexpr std::string_view kNewcomersAdvice =
    "a process that comes to a running job needs MASTER_ADDR and MASTER_PORT of that job, or "
    "TUTTI_STORE=tcp://... or file://... as the job has it";

std::string_view require(Environment environment, std::string_view variable,
                         std::string_view advice = kAdvice) {
  const auto value = find(environment, variable);
  if (!value || value->empty())
    throw Error(ErrorKind::usage,
                fmt::format("{} is {}; {}", variable, value ? "set but empty" : "not set", advice));
  return *value;
}

int number(std::string_view variable, std::string_view text, int least, int most) {
  assert(least <= most);
  const auto value = parse_number<int>(text);
  if (!value || *value < least || *value > most)
    throw Error(ErrorKind::usage, fmt::format("{} is {}; it must be a number in {}..{}; {}",
                                              variable, shown(text), least, most, kAdvice));
  return *value;
}

int rank_number(std::string_view variable, std::string_view text, int size) {
  assert(1 <= size && size <= kMaxRanks);
  const int value = number(variable, text, 0, kMaxRanks - 1);
  if (value >= size)
    throw Error(ErrorKind::usage,
                fmt::format("{} is {} but WORLD_SIZE is {}: ranks are numbered 0..{}; {}", variable,
                            value, size, size - 1, kAdvice));
  return value;
}

// Whether the variables of torch.distributed are set; they take precedence over PMIx.
bool has_variables(Environment environment) {
  return find(environment, "RANK") || find(environment, "WORLD_SIZE");
}

// Sets the address from a tcp:// or file:// store. Returns false if `store` is neither.
bool take_address(std::string_view store, LaunchEnvironment& launch) {
  constexpr std::string_view kFile = "file://";
  if (store.starts_with(kFile)) launch.file = store.substr(kFile.size());
  if (!launch.file.empty()) return true;
  constexpr std::string_view kTcp = "tcp://";
  if (!store.starts_with(kTcp)) return false;
  const auto address = parse_socket_address(store.substr(kTcp.size()));
  assert(address);  // the configuration has checked it
  launch.master_address = address->host;
  launch.master_port = address->port;
  launch.tcp_alone = true;
  return true;
}

}  // namespace

LaunchEnvironment read_launch_environment(Environment environment, std::string_view store) {
  LaunchEnvironment launch;
  launch.size = number("WORLD_SIZE", require(environment, "WORLD_SIZE"), 1, kMaxRanks);
  launch.rank = rank_number("RANK", require(environment, "RANK"), launch.size);
  launch.local_rank = launch.rank;
  if (find(environment, "LOCAL_RANK"))
    launch.local_rank = rank_number("LOCAL_RANK", require(environment, "LOCAL_RANK"), launch.size);
  launch.job = find(environment, "TORCHELASTIC_RUN_ID").value_or("");
  if (find(environment, "LOCAL_WORLD_SIZE"))
    launch.local_size =
        number("LOCAL_WORLD_SIZE", require(environment, "LOCAL_WORLD_SIZE"), 1, launch.size);
  // One rank alone needs no store, but newcomers may come to one in a file.
  if (launch.size == 1 && !store.starts_with("file://")) return launch;
  assert(launch.rank < launch.size && launch.local_rank < launch.size);

  if (take_address(store, launch)) return launch;
  launch.master_address = require(environment, "MASTER_ADDR");
  launch.master_port = number("MASTER_PORT", require(environment, "MASTER_PORT"), 1, 65'535);
  if (find(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True")
    launch.agent_key = fmt::format("tutti/{}/{}", launch.job,
                                   find(environment, "TORCHELASTIC_RESTART_COUNT").value_or("0"));
  return launch;
}

LaunchEnvironment read_newcomer_environment(Environment environment, std::string_view store) {
  LaunchEnvironment launch;
  launch.rank = kFirstNewcomer + static_cast<int>(SystemRandom().next() % kFirstNewcomer);
  launch.job = find(environment, "TORCHELASTIC_RUN_ID").value_or("");
  if (take_address(store, launch)) return launch;
  launch.master_address = require(environment, "MASTER_ADDR", kNewcomersAdvice);
  launch.master_port =
      number("MASTER_PORT", require(environment, "MASTER_PORT", kNewcomersAdvice), 1, 65'535);
  return launch;
}

LaunchEnvironment find_launch(Environment environment, std::string_view store, TimePoint deadline) {
  if (has_variables(environment) || !pmix::has_started(environment))
    return read_launch_environment(environment, store);
  auto client = std::make_shared<const pmix::Client>(deadline);
  const pmix::Job& job = client->job();
  LaunchEnvironment launch;
  launch.rank = job.rank;
  launch.size = job.size;
  launch.local_rank = job.local_rank;
  launch.local_size = job.local_size;
  launch.job = job.name;
  if (!take_address(store, launch)) launch.pmix = std::move(client);
  return launch;
}

bool is_launched(Environment environment) {
  return has_variables(environment) || pmix::has_started(environment);
}

bool launched() { return is_launched(process_environment()); }

bool is_newcomer(Environment environment) {
  if (is_launched(environment)) return false;
  const auto is_set = [&](std::string_view variable) {
    return !find(environment, variable).value_or("").empty();
  };
  const std::string_view store = find(environment, "TUTTI_STORE").value_or("");
  return (is_set("MASTER_ADDR") && is_set("MASTER_PORT")) || store.starts_with("tcp://") ||
         store.starts_with("file://");
}

bool newcomer() { return is_newcomer(process_environment()); }

std::string_view launched_rank(Environment environment) {
  if (!is_launched(environment)) return {};
  return find(environment, has_variables(environment) ? "RANK" : "PMIX_RANK").value_or("");
}

}  // namespace tutti
