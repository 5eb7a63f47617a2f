#include "trace/job.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include <tutti/types.hpp>

namespace tutti::tools {
namespace {

using Member = TracedCommunicator::Member;

constexpr auto kNone = std::numeric_limits<std::int64_t>::min();

// The limits between which the difference of two clocks lies.
struct Bounds {
  std::int64_t least = kNone;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();

  bool closed() const noexcept {
    return least != kNone && most != std::numeric_limits<std::int64_t>::max() && least <= most;
  }
};

std::vector<TracedCommunicator> communicators_of(const std::vector<TracedProcess>& processes) {
  std::map<std::uint64_t, TracedCommunicator> found;
  for (const TracedProcess& process : processes)
    for (const TracedRank& rank : process.ranks) {
      TracedCommunicator& whole = found[rank.identity];
      whole.identity = rank.identity;
      whole.name = rank.name;
      const auto size = static_cast<std::size_t>(rank.size);
      if (whole.members.size() < size) whole.members.resize(size);
      Member& member = whole.members[static_cast<std::size_t>(rank.rank)];
      // The same rank may be there twice: as a process, and as a dump. The later counts.
      if (member.process == nullptr || member.process->read_at < process.read_at)
        member = {&process, &rank};
    }
  std::vector<TracedCommunicator> list;
  for (auto& [identity, communicator] : found) list.push_back(std::move(communicator));
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
    return a.members.size() > b.members.size();
  });
  return list;
}

// Two ranks of different machines limit how far their clocks differ: neither ends an operation
// before the other has begun it. Adding the result to the times of `b` gives those of `a`.
void narrow(const TracedRank& a, const TracedRank& b, Bounds& bounds) {
  std::unordered_map<std::uint64_t, const TracedOperation*> by_number;
  for (const TracedOperation& each : a.operations)
    if (joins_all(each)) by_number[each.record.number] = &each;
  for (const TracedOperation& there : b.operations) {
    if (!joins_all(there)) continue;
    const auto here = by_number.find(there.record.number);
    if (here == by_number.end()) continue;
    if (!here->second->under_way())
      bounds.most = std::min(bounds.most, here->second->ended - there.began);
    if (!there.under_way())
      bounds.least = std::max(bounds.least, here->second->began - there.ended);
  }
}

// The error of a record's beginning, which is taken after the first messages have left.
constexpr std::int64_t kRecordedLate = 1000;

void align(const std::string& first, std::map<std::string, ClockOffset>& clocks,
           const std::vector<TracedCommunicator>& communicators) {
  std::map<std::string, Bounds> bounds;
  for (const TracedCommunicator& communicator : communicators) {
    std::vector<const Member*> here, elsewhere;  // a trace may claim any number of ranks
    for (const Member& member : communicator.members)
      if (member.trace != nullptr)
        (member.process->machine == first ? here : elsewhere).push_back(&member);
    for (const Member* const a : here)
      for (const Member* const b : elsewhere)
        narrow(*a->trace, *b->trace, bounds[b->process->machine]);
  }
  for (const auto& [machine, found] : bounds) {
    if (!found.closed()) continue;
    clocks[machine].ahead = clocks[first].ahead + found.least + (found.most - found.least) / 2;
    clocks[machine].exact_to = (found.most - found.least) / 2 + kRecordedLate;
  }
}

}  // namespace

std::vector<int> TracedCommunicator::missing() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    if (members[rank].trace == nullptr) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

bool joins_all(const TracedOperation& operation) {
  if (operation.is_transfer()) return false;
  const bool good = operation.under_way() || operation.record.outcome == Record::kGood;
  switch (static_cast<Collective>(operation.record.kinds & 0xff)) {
    case Collective::barrier: return good;
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return good && operation.record.count > 0 &&
             (operation.record.kinds & Record::kVariable) == 0;
    default: return false;
  }
}

TracedJob merge(const std::vector<TracedProcess>& processes) {
  TracedJob job;
  if (processes.empty()) return job;
  const std::string& first = processes.front().machine;
  for (const TracedProcess& process : processes)
    job.clocks.try_emplace(process.machine, ClockOffset{process.host, process.calendar, {}});
  job.clocks[first].exact_to = 0;
  job.communicators = communicators_of(processes);
  align(first, job.clocks, job.communicators);
  for (TracedCommunicator& communicator : job.communicators)
    for (Member& member : communicator.members)
      if (member.trace != nullptr) member.ahead = job.clocks[member.process->machine].ahead;
  return job;
}

}  // namespace tutti::tools
