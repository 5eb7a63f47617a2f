#include "trace/watch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trace/job.h"
#include "trace/report.h"

namespace tutti::tools {
namespace {

using Member = TracedCommunicator::Member;

struct Link {
  int operations = 0;
  std::int64_t total = 0;
};

// Returns for each pair (rank, the rank it waited for longest) the time of such operations.
std::map<std::pair<int, int>, Link> links_of(const TracedCommunicator& communicator,
                                             std::int64_t since) {
  std::map<std::pair<int, int>, Link> links;
  for (std::size_t rank = 0; rank < communicator.members.size(); ++rank) {
    const Member& member = communicator.members[rank];
    if (member.trace == nullptr) continue;
    for (const TracedOperation& each : member.trace->operations) {
      const int peer = each.is_transfer() ? each.record.peer : each.record.waits_for;
      if (peer < 0 || (!each.under_way() && member.job_time(each.ended) <= since)) continue;
      Link& link = links[{static_cast<int>(rank), peer}];
      ++link.operations;
      link.total += each.ended - each.began;
    }
  }
  return links;
}

std::string table_of(const TracedCommunicator& communicator, std::int64_t since) {
  constexpr std::size_t kMostRows = 8;
  const Stragglers found = find_stragglers(communicator, since);
  std::string text = fmt::format("{} of {} ranks: {} operations\n",
                                 communicator.name.empty() ? "-" : communicator.name,
                                 communicator.members.size(), found.operations);
  for (std::size_t i = 0; i < std::min(kMostRows, found.ranks.size()); ++i) {
    const Lateness& late = found.ranks[i];
    text += fmt::format("  rank {:<5} last in {:<6} late by {:>8} on average, {:>8} at most\n",
                        late.rank, late.last, show_duration(late.total / late.last),
                        show_duration(late.worst));
  }
  const auto links = links_of(communicator, since);
  std::vector<std::pair<std::pair<int, int>, Link>> slowest(links.begin(), links.end());
  std::stable_sort(slowest.begin(), slowest.end(),
                   [](const auto& a, const auto& b) { return a.second.total > b.second.total; });
  for (std::size_t i = 0; i < std::min(kMostRows, slowest.size()); ++i)
    text += fmt::format("  rank {} for {:<5} waited in {:<4} for {:>8} in all\n",
                        slowest[i].first.first, slowest[i].first.second,
                        slowest[i].second.operations, show_duration(slowest[i].second.total));
  return text;
}

}  // namespace

std::string Watch::look(const std::vector<TracedProcess>& processes) {
  const TracedJob job = merge(processes);
  std::string text;
  for (const TracedCommunicator& communicator : job.communicators) {
    std::int64_t now = std::numeric_limits<std::int64_t>::max();
    for (const Member& member : communicator.members)
      if (member.trace != nullptr) now = std::min(now, member.job_time(member.process->read_at));
    const auto [before, first] = seen_.try_emplace(communicator.identity, 0);
    text += table_of(communicator, before->second);
    before->second = now;
  }
  return text;
}

}  // namespace tutti::tools
