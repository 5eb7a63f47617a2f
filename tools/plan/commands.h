// Declares the subcommands of tutti-plan. Each function declares one, and sets `run` when it was
// named on the command line; run() then does it and returns the exit status.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <CLI/CLI.hpp>

#include <tutti/schedule.hpp>

namespace tutti::tools {

inline constexpr int kRejectedStatus = 1, kTooLargeStatus = 3;

using Run = std::function<int()>;

void add_verify(CLI::App& app, Run& run);
void add_convert(CLI::App& app, Run& run);
void add_show(CLI::App& app, Run& run);
void add_explain(CLI::App& app, Run& run);
void add_simulate(CLI::App& app, Run& run);
void add_sweep(CLI::App& app, Run& run);
void add_synthesize(CLI::App& app, Run& run);

/// Returns the collective of this name; throws CLI::ValidationError, which lists the known ones.
Collective collective_named(const std::string& name);
std::vector<Collective> all_collectives();

/// Returns 10^9 bytes a second that each rank would move, as tutti-perf's bus bandwidth.
double bus_gb_per_s(Collective what, int ranks, std::uint64_t bytes, double us);

/// Verifies the schedules in place and out of place, and reports the result on standard error.
/// Returns the exit status.
int prove(std::span<const Schedule> schedules, int window);

}  // namespace tutti::tools
