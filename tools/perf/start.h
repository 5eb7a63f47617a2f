// Starts the ranks of a measurement: as processes, or in this one for its threads to drive.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "perf/options.h"
#include "perf/team.h"

namespace tutti::perf {

/// Numbers a thread among those that measure on this machine.
struct Place {
  int local = 0, of = 1;
};

/// Is called by each thread with its ranks. Returns the exit status.
using Measure = std::function<int(Team&, const Place&)>;

/// Returns the path of this program.
[[nodiscard]] std::string own_program();

/// Starts the ranks as processes of this program with `arguments`. Returns the exit status.
int start_ranks(const Options& options, const std::vector<std::string>& arguments);

/// Runs this process as one of those that a launcher has started: with one rank, or on GPUs with
/// those of -t and -g. Returns the greatest status.
int run_process(const Options& options, const Config& config, const Measure& measure);

/// Runs all ranks in this process (-t, -g). If one fails, the end of its communicator ends the
/// waiting of the others. Returns the greatest status.
int run_threads(const Options& options, const Config& config, const Measure& measure);

}  // namespace tutti::perf
