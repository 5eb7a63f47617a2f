#include "perf/start.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "launch/launch.h"
#include "perf/gpus.h"
#include "rendezvous/launch/launch_environment.h"

namespace tutti::perf {
namespace {

/// Is the part of a store whose keys begin with a prefix, for ranks beside those whose store it is.
class PartOfStore final : public Store {
 public:
  PartOfStore(std::shared_ptr<Store> whole, std::string prefix)
      : whole_(std::move(whole)), prefix_(std::move(prefix)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    whole_->set(of(key), value, deadline);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    return whole_->get(of(key), deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    return whole_->add(of(key), amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override { whole_->wait(of(key), deadline); }
  std::string get_unless(std::string_view key, const Unless& unless, Deadline deadline) override {
    Unless its = unless;
    for (std::string& other : its.keys) other = of(other);
    return whole_->get_unless(of(key), its, deadline);
  }
  void set_when_gone(std::string_view key, std::string_view value, Deadline deadline) override {
    whole_->set_when_gone(of(key), value, deadline);
  }

 private:
  std::string of(std::string_view key) const { return prefix_ + std::string(key); }

  const std::shared_ptr<Store> whole_;
  const std::string prefix_;
};

/// Gives each rank its GPU, if buffers are on GPUs, and each thread its ranks.
std::vector<Team> make_teams(std::vector<Communicator> communicators, const Options& options,
                             const GpuPlan& plan, const std::shared_ptr<const Gpus>& gpus) {
  std::vector<Team> teams;
  std::vector<TeamRank> ranks;
  for (std::size_t i = 0; i < communicators.size(); ++i) {
    std::unique_ptr<GpuOfRank> gpu;
    if (gpus)
      gpu = std::make_unique<GpuOfRank>(gpus, gpu_of(plan, static_cast<int>(i), gpus->count()),
                                        options.null_stream);
    ranks.push_back({std::move(gpu), std::move(communicators[i]), {}});
    if (static_cast<int>(ranks.size()) == options.gpus)
      teams.emplace_back(std::exchange(ranks, {}));
  }
  return teams;
}

bool is_peer_lost(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::peer_lost;
  } catch (...) {
    return false;
  }
}

/// Waits for all and returns their results. Of several failures the first is thrown that is not
/// the loss of a peer: the end of a rank that fails is such a loss to the others.
template <typename Result>
std::vector<Result> results_of(std::vector<std::future<Result>> all) {
  std::vector<Result> results;
  std::exception_ptr failure;
  for (std::future<Result>& each : all) {
    try {
      results.push_back(each.get());
    } catch (...) {
      if (!failure || is_peer_lost(failure)) {
        const std::exception_ptr other = std::current_exception();
        if (!failure || !is_peer_lost(other)) failure = other;
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
  return results;
}

/// Has a thread measure each team.
int measure_all(std::vector<Team> teams, int first, int of, const Measure& measure) {
  std::vector<std::future<int>> threads;
  for (std::size_t i = 0; i < teams.size(); ++i)
    threads.push_back(std::async(
        std::launch::async,
        [&measure](Team team, const Place& place) { return measure(team, place); },
        std::move(teams[i]), Place{first + static_cast<int>(i), of}));
  const std::vector<int> statuses = results_of(std::move(threads));
  return *std::max_element(statuses.begin(), statuses.end());
}

/// Returns the GPUs if buffers are on them. The driver is loaded before a communicator is made,
/// which looks for it.
std::shared_ptr<const Gpus> open_gpus(const Options& options) {
  return options.on_gpus() ? Gpus::open() : nullptr;
}

void check_gpus(const GpuPlan& plan, const std::shared_ptr<const Gpus>& gpus) {
  for (int i = 0; gpus && i < plan.own; ++i) (void)gpu_of(plan, i, gpus->count());
}

/// Joins the ranks of all processes, so many of each. `processes` has a rank for each process.
std::vector<Communicator> join_ranks(Communicator& processes, const GpuPlan& plan, int gpus,
                                     const Config& config) {
  std::vector<int> counts(static_cast<std::size_t>(processes.size()));
  processes.all_gather(&plan.own, counts.data(), 1, DataType::int32);
  const auto other =
      std::find_if(counts.begin(), counts.end(), [&](int count) { return count != plan.own; });
  if (other != counts.end())
    throw Error(ErrorKind::usage,
                fmt::format("process {} has {} ranks (-t times -g), and process {} has {}: give "
                            "all of them the same",
                            processes.rank(), plan.own, other - counts.begin(), *other));
  const auto store = std::make_shared<PartOfStore>(processes.store(), "tutti-perf/");
  std::vector<std::future<Communicator>> joining;
  for (int i = 0; i < plan.own; ++i) {
    Config own = config;
    if (config.device != "none") own.device = std::to_string(gpu_of(plan, i, gpus));
    joining.push_back(std::async(std::launch::async, [=, &processes] {
      return Communicator::create(store, processes.rank() * plan.own + i,
                                  processes.size() * plan.own, own);
    }));
  }
  return results_of(std::move(joining));
}

}  // namespace

std::string own_program() {
  std::error_code failed;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed)
    throw Error(ErrorKind::unavailable,
                fmt::format("cannot find this program to start ranks with it: /proc/self/exe: {}",
                            failed.message()));
  return path;
}

int start_ranks(const Options& options, const std::vector<std::string>& arguments) {
  const std::shared_ptr<const Gpus> gpus = open_gpus(options);
  const int ranks = gpus && options.rank_per_gpu ? gpus->count() : options.ranks;
  check_gpus({options.device, 0, ranks, ranks}, gpus);
  require_ranks(options, ranks);
  tools::LaunchOptions launch;
  launch.tool = "tutti-perf";
  launch.ranks = ranks;
  launch.tag = false;  // only rank 0 writes
  launch.command = arguments;
  launch.command[0] = own_program();
  return tools::launch(launch);
}

int run_process(const Options& options, const Config& config, const Measure& measure) {
  const int own = options.ranks_of_process();
  if (own > 1 && !options.on_gpus())
    throw Error(ErrorKind::unavailable,
                fmt::format("-t {}: a launcher started the ranks as processes, and ranks are "
                            "threads of one process or processes of one thread, not both, where "
                            "buffers are the host's (without --device)",
                            options.threads));
  const std::shared_ptr<const Gpus> gpus = open_gpus(options);
  Config of_process = config;
  if (own > 1) of_process.device = "none";  // these ranks only introduce the others
  Communicator processes = Communicator::from_env(of_process);
  if (options.ranks_given && options.ranks != processes.size())
    throw Error(
        ErrorKind::usage,
        fmt::format("--ranks {}: a launcher started {} ranks; tell the launcher how many to "
                    "start, and leave --ranks out",
                    options.ranks, processes.size()));
  // This must come after the communicator is made, which holds PMIx: see pmix::Client.
  const LaunchEnvironment launch = find_launch(process_environment(), config.store,
                                               SteadyClock().now() + config.startup_timeout);
  const int local = launch.local_size > 0 ? launch.local_size : launch.size;
  const GpuPlan plan{options.device, launch.local_rank * own, own, local * own};
  check_gpus(plan, gpus);
  std::vector<Communicator> communicators;
  if (own > 1)
    communicators = join_ranks(processes, plan, gpus->count(), config);
  else
    communicators.push_back(std::move(processes));
  std::vector<Team> teams = make_teams(std::move(communicators), options, plan, gpus);
  const int first = launch.local_rank * options.threads, of = local * options.threads;
  if (teams.size() == 1) return measure(teams.front(), {first, of});
  return measure_all(std::move(teams), first, of, measure);
}

int run_threads(const Options& options, const Config& config, const Measure& measure) {
  const int own = options.ranks_of_process();
  require_ranks(options, own);
  const std::shared_ptr<const Gpus> gpus = open_gpus(options);
  const GpuPlan plan{options.device, 0, own, own};
  check_gpus(plan, gpus);
  return measure_all(make_teams(Communicator::in_process(own, config), options, plan, gpus), 0,
                     options.threads, measure);
}

}  // namespace tutti::perf
