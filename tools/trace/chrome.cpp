#include "trace/chrome.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::tools {
namespace {

using Json = nlohmann::ordered_json;
using Member = TracedCommunicator::Member;

std::int64_t first_time(const TracedJob& job) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const TracedCommunicator& communicator : job.communicators)
    for (const Member& member : communicator.members)
      if (member.trace != nullptr)
        for (const TracedOperation& each : member.trace->operations)
          first = std::min(first, member.job_time(each.called));
  return first;
}

Json metadata(const char* what, int pid, std::size_t tid, Json arguments) {
  return {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", std::move(arguments)}};
}

// Returns when each operation ended. The events of collectives of one rank must not overlap, and
// the end of a short call is only estimated.
std::vector<std::int64_t> ends_of(const std::vector<TracedOperation>& operations) {
  std::vector<std::int64_t> ends(operations.size());
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = operations.size(); i-- > 0;) {
    const TracedOperation& each = operations[i];
    ends[i] = each.is_transfer() ? each.ended : std::max(each.began, std::min(each.ended, next));
    if (!each.is_transfer()) next = each.began;
  }
  return ends;
}

// Adds the events of one rank. `id` counts the transfers of the job, which have to be told apart.
void add_events(const Member& member, int pid, std::size_t tid, std::int64_t first, int& id,
                Json& events) {
  const auto at = [&](std::int64_t time) {
    return static_cast<double>(member.job_time(time) - first) / 1e3;
  };
  const std::vector<std::int64_t> ends = ends_of(member.trace->operations);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const TracedOperation& each = member.trace->operations[i];
    Json arguments{{"number", each.record.number}, {"outcome", outcome_of(each)}};
    if (each.called < each.began) arguments["queued_us"] = at(each.began) - at(each.called);
    if (each.record.waits_for >= 0) arguments["waits_for"] = each.record.waits_for;
    if (each.record.ended == Record::kSoon) arguments["ended"] = "within 2 us";
    if (each.calls() > 1) arguments["calls"] = each.calls();
    if (!each.is_transfer()) {
      arguments["algorithm"] = algorithm_of(each);
      events.push_back({{"ph", "X"},
                        {"cat", "collective"},
                        {"name", describe(each)},
                        {"pid", pid},
                        {"tid", tid},
                        {"ts", at(each.began)},
                        {"dur", at(ends[i]) - at(each.began)},
                        {"args", std::move(arguments)}});
      continue;
    }
    Json begin{{"ph", "b"},  {"cat", "transfer"}, {"name", describe(each)}, {"id", ++id},
               {"pid", pid}, {"tid", tid},        {"ts", at(each.began)}};
    Json end = begin;
    begin["args"] = std::move(arguments);
    end["ph"] = "e";
    end["ts"] = at(each.ended);
    events.push_back(std::move(begin));
    events.push_back(std::move(end));
  }
}

}  // namespace

std::string to_chrome(const TracedJob& job) {
  const std::int64_t first = first_time(job);
  Json events = Json::array();
  // A process of the trace is a rank: several ranks may be threads of one process.
  std::map<std::pair<const TracedProcess*, int>, int> pids;
  int transfers = 0;
  for (std::size_t tid = 0; tid < job.communicators.size(); ++tid) {
    const TracedCommunicator& communicator = job.communicators[tid];
    for (const Member& member : communicator.members) {
      if (member.trace == nullptr) continue;
      const auto [known, fresh] = pids.try_emplace({member.process, member.trace->world_rank},
                                                   static_cast<int>(pids.size()));
      const int pid = known->second;
      if (fresh) {
        const std::string name = fmt::format("rank {} ({}, process {})", member.trace->world_rank,
                                             member.process->host, member.process->pid);
        events.push_back(metadata("process_name", pid, 0, {{"name", name}}));
        events.push_back(
            metadata("process_sort_index", pid, 0, {{"sort_index", member.trace->world_rank}}));
      }
      events.push_back(
          metadata("thread_name", pid, tid,
                   {{"name", fmt::format("{} as rank {} of {}", communicator.name,
                                         member.trace->rank, communicator.members.size())}}));
      add_events(member, pid, tid, first, transfers, events);
    }
  }
  Json clocks = Json::array();
  for (const auto& [machine, clock] : job.clocks)
    clocks.push_back(
        {{"host", clock.host},
         {"exact_to_us",
          clock.exact_to ? Json(static_cast<double>(*clock.exact_to) / 1e3) : Json(nullptr)}});
  const Json trace{{"displayTimeUnit", "ns"},
                   {"traceEvents", std::move(events)},
                   {"otherData", {{"clocks", std::move(clocks)}}}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::tools
