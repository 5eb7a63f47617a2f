#include "topology/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include <tutti/error.hpp>

#include "common/text.h"

namespace tutti {
namespace {

/// Returns the reason why ranks should not be bound, or an empty string if they should.
std::string why_not(const Machine& machine, int ranks, std::size_t cores) {
  assert(ranks >= 1);
  const Cpus offered = intersect(machine.limits.cpus.value_or(machine.cpus()), machine.cpus());
  if (ranks == 1) return "one rank may use all that the process may";
  if (machine.described) return "this is a description of another machine";
  if (!contains(machine.allowed, offered))
    return fmt::format("the process is bound already, to cpus {}", to_text(machine.allowed));
  if (static_cast<std::size_t>(ranks) > cores)
    return fmt::format("{} ranks are more than the {} cores", ranks, cores);
  if (machine.limits.cpu_quota && *machine.limits.cpu_quota < static_cast<double>(cores))
    return fmt::format("a quota of {:.3g} cpus says that others use these {} cores, too",
                       *machine.limits.cpu_quota, cores);
  return "";
}

/// Divides c cores among n ranks: rank i gets the cores from i·c/n to (i+1)·c/n, so each core
/// belongs to one rank.
std::vector<Cpus> shares(const std::vector<Cpus>& cores, std::size_t ranks) {
  assert(ranks > 0);
  assert(ranks <= cores.size());
  std::vector<Cpus> result(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t i = rank * cores.size() / ranks; i < (rank + 1) * cores.size() / ranks; ++i)
      result[rank] = unite(result[rank], cores[i]);
  assert(std::none_of(result.begin(), result.end(), [](const Cpus& own) { return own.empty(); }));
  return result;
}

std::vector<Cpus> listed(std::size_t ranks, std::string_view bind) {
  auto list = parse_cpus_of_ranks(bind);
  if (!list)
    throw Error(ErrorKind::usage,
                fmt::format("bind is {}; it must be auto, none, or the cpus of each rank, such as "
                            "0-3,4-7 or 0+8,1+9",
                            shown(bind)));
  if (list->size() < ranks)
    throw Error(ErrorKind::usage,
                fmt::format("bind is {}, which has cpus for {} ranks; there are {} on this machine",
                            shown(bind), list->size(), ranks));
  list->resize(ranks);
  return *std::move(list);
}

}  // namespace

Placement place(const Machine& machine, int ranks, std::string_view bind) {
  assert(ranks >= 1);
  assert(machine.is_sound());
  if (bind == "none") return {{}, "bind is none"};
  const auto count = static_cast<std::size_t>(ranks);
  if (bind != "auto") return {listed(count, bind), ""};
  const std::vector<Cpus> cores = cores_within(machine, machine.allowed);
  std::string reason = why_not(machine, ranks, cores.size());
  if (!reason.empty()) return {{}, std::move(reason)};
  return {shares(cores, count), ""};
}

void check_usable(const Machine& machine, const Cpus& cpus, int rank) {
  assert(rank >= 0 && !cpus.empty());
  if (contains(machine.allowed, cpus)) return;
  throw Error(ErrorKind::usage, fmt::format("bind gives rank {} the cpus {}, and this process may "
                                            "use {} alone",
                                            rank, to_text(cpus), to_text(machine.allowed)));
}

}  // namespace tutti
