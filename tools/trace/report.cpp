#include "trace/report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/text.h"

namespace tutti::tools {
namespace {

using Member = TracedCommunicator::Member;

// A straggler has kept the others waiting for so long in all, and was last so often.
constexpr std::int64_t kWorthTelling = 1'000'000;
constexpr int kLeastOften = 8;

// A straggler is so many times as late as half of the other ranks, and so many standard deviations
// more often than by chance.
constexpr int kTimesTheOthers = 3, kDeviations = 3;

// A rank goes on if others have waited for it for less than this, in nanoseconds, since its last
// sign of life. The traces of a job that runs are read one after the other.
constexpr std::int64_t kLateAtMost = 100'000'000;

// No more than so many sends and receives of a rank are looked at for whom they wait.
constexpr int kMostTransfers = 1000;

// The most ranks without a record of which it is said that a rank waits for them.
constexpr int kMostUnknown = 16;

// Times may come from a file that somebody has changed.
std::int64_t sum_of(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

std::string numbered(const TracedOperation& operation) {
  return operation.is_transfer()
             ? describe(operation)
             : fmt::format("#{} {}", operation.last_number(), describe(operation));
}

const TracedOperation* last_under_way(const TracedRank& rank) {
  const TracedOperation* found = nullptr;
  for (const TracedOperation& each : rank.operations)
    if (each.under_way() && (found == nullptr || each.began < found->began)) found = &each;
  return found;
}

std::int64_t time_in_store_call(const TracedRank& rank, std::int64_t read_at) {
  return std::max<std::int64_t>(read_at - rank.store_call_began, 0);
}

std::string where_in_store_call(const TracedRank& rank, std::int64_t read_at) {
  const int waits_for = rank.store_call_waits_for;
  std::string text = fmt::format("in {} for {}", describe(rank.store_call),
                                 show_duration(time_in_store_call(rank, read_at)));
  if (waits_for == RingHead::kNewcomers) text += ", waits for newcomers";
  if (waits_for >= 0) text += fmt::format(", waits for rank {}", waits_for);
  if (rank.state == RingState::failed) text += "; it had failed: " + rank.failure;
  return text;
}

// Returns the number of the last collective that the rank has begun, or -1.
std::int64_t last_number(const TracedRank& rank) {
  const TracedOperation* const last = rank.last_collective();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max() / 2;  // can be subtracted
  return last == nullptr
             ? -1
             : static_cast<std::int64_t>(std::min<std::uint64_t>(last->last_number(), kMost));
}

std::string heading(const TracedCommunicator& communicator) {
  return fmt::format("communicator {} of {} rank{} ({:016x})",
                     communicator.name.empty() ? "without a name" : communicator.name,
                     communicator.members.size(), communicator.members.size() == 1 ? "" : "s",
                     communicator.identity);
}

// Groups ranks of which the same is to be said.
std::string places(const TracedCommunicator& communicator) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t rank = 0; rank < communicator.members.size(); ++rank) {
    const Member& member = communicator.members[rank];
    std::string where =
        "no record: the process has ended or left the communicator, or its trace was not read";
    if (member.trace != nullptr) {
      where = where_now(*member.trace, member.process->read_at);
      if (member.process->stopped) where += "; the process is stopped by a signal";
    }
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.first == where; });
    if (same != groups.end())
      same->second.push_back(static_cast<int>(rank));
    else
      groups.push_back({where, {static_cast<int>(rank)}});
  }
  std::string text;
  for (const auto& [where, ranks] : groups)
    text += fmt::format("  {}: {}\n", show_ranks(ranks), where);
  return text;
}

// Returns whether the rank has begun or ended something, or has been read, so soon after others
// began to wait for it that it may only be late.
bool goes_on(const Member& member, std::int64_t awaited_since) {
  if (member.trace->state != RingState::open || member.process->stopped) return false;
  std::int64_t last_sign = awaited_since;
  if (member.trace->store_call != StoreCall::none)
    last_sign = std::max(last_sign, member.job_time(member.trace->store_call_began));
  for (const TracedOperation& each : member.trace->operations)
    last_sign = std::max(last_sign, member.job_time(each.under_way() ? each.began : each.ended));
  return member.job_time(member.process->read_at) - last_sign < kLateAtMost;
}

std::string absent(const TracedCommunicator& communicator) {
  std::int64_t furthest = -1, since = 0;
  const TracedOperation* awaited = nullptr;
  for (const Member& member : communicator.members) {
    if (member.trace == nullptr) continue;
    const std::int64_t last = last_number(*member.trace);
    if (last < furthest || last < 0) continue;
    const TracedOperation* const operation = member.trace->last_collective();
    const std::int64_t began = member.job_time(operation->began);
    since = last > furthest ? began : std::min(since, began);
    if (last > furthest) awaited = operation;
    furthest = last;
  }
  if (awaited == nullptr) return {};
  std::vector<int> never_came;
  std::map<std::int64_t, std::vector<int>> behind;  // indexed by the number of operations
  for (std::size_t rank = 0; rank < communicator.members.size(); ++rank) {
    const Member& member = communicator.members[rank];
    if (member.trace == nullptr || last_number(*member.trace) >= furthest) continue;
    (goes_on(member, since) ? behind[furthest - last_number(*member.trace)] : never_came)
        .push_back(static_cast<int>(rank));
  }
  std::string text;
  for (const auto& [operations, ranks] : behind)
    text += fmt::format("  Behind: {} {} {} operation{} before {}, and {} on.\n", show_ranks(ranks),
                        ranks.size() == 1 ? "is" : "are", operations, operations == 1 ? "" : "s",
                        numbered(*awaited), ranks.size() == 1 ? "goes" : "go");
  if (never_came.empty()) return text;
  return text +
         fmt::format("  Never came: {} {} not called {}, in which other ranks are or were.\n",
                     show_ranks(never_came), never_came.size() == 1 ? "has" : "have",
                     numbered(*awaited));
}

std::string mismatch_text(const TracedCommunicator& communicator) {
  const auto mismatch = find_mismatch(communicator);
  if (!mismatch) return {};
  std::string text =
      fmt::format("  Mismatch: under number {} ranks called different things:\n", mismatch->number);
  for (const Mismatch::Call& call : mismatch->calls)
    text += fmt::format("    {}: {}\n", show_ranks(call.ranks), call.call);
  return text;
}

std::string stragglers_text(const TracedCommunicator& communicator) {
  const Stragglers found = find_stragglers(communicator);
  if (found.operations == 0) return {};
  std::string text;
  for (const Lateness& late : found.ranks) {
    if (!late.stands_out) continue;
    text += fmt::format(
        "  Straggler: rank {} entered last in {} of {} operations, {} later than the median rank "
        "on "
        "average and {} at most (#{}); that is {} in all.\n",
        late.rank, late.last, found.operations, show_duration(late.total / late.last),
        show_duration(late.worst), late.worst_number, show_duration(late.total));
  }
  if (!text.empty()) return text;
  const auto latest =
      std::max_element(found.ranks.begin(), found.ranks.end(),
                       [](const Lateness& a, const Lateness& b) { return a.worst < b.worst; });
  return fmt::format(
      "  No straggler in the last {} operation{}{}.\n", found.operations,
      found.operations == 1 ? "" : "s",
      latest->worst < kWorthTelling
          ? ""
          : fmt::format("; the latest was rank {} in #{}, {} later than the median "
                        "rank",
                        latest->rank, latest->worst_number, show_duration(latest->worst)));
}

std::string waits_text(const TracedJob& job) {
  const std::vector<Wait> waits = find_waits(job);
  if (waits.empty()) return {};
  std::string text = "Who waits for whom:\n";
  for (const Wait& wait : waits)
    text += fmt::format("  {}: rank {} waits for rank {} in {}, for {}\n",
                        wait.communicator->name.empty() ? "-" : wait.communicator->name, wait.from,
                        wait.to, wait.in, show_duration(wait.for_ns));
  const std::vector<Wait> cycle = find_cycle(waits);
  if (!cycle.empty()) {
    text += "  Deadlock: ";
    for (const Wait& wait : cycle)
      text += fmt::format("rank {} waits for rank {}{}", wait.from, wait.to,
                          &wait == &cycle.back() ? ".\n" : ", ");
    return text;
  }
  // The ranks for which others wait and which wait for nobody are where a chain ends.
  std::set<std::pair<const TracedCommunicator*, int>> ends;
  for (const Wait& wait : waits) ends.insert({wait.communicator, wait.to});
  for (const Wait& wait : waits) ends.erase({wait.communicator, wait.from});
  for (const auto& [communicator, rank] : ends) {
    const Member& member = communicator->members[static_cast<std::size_t>(rank)];
    text +=
        fmt::format("  All that waits there ends at rank {} of {}: {}\n", rank, communicator->name,
                    member.trace == nullptr ? "there is no record of it"
                                            : where_now(*member.trace, member.process->read_at));
  }
  return text;
}

std::string clocks_text(const TracedJob& job) {
  if (job.clocks.size() < 2) return {};
  std::string text = "Clocks of the machines:\n";
  for (const auto& [machine, clock] : job.clocks)
    text += clock.exact_to
                ? fmt::format("  {}: exact to {}\n", clock.host, show_duration(*clock.exact_to))
                : fmt::format(
                      "  {}: by its calendar alone, since no operation of its ranks ended on "
                      "all ranks\n",
                      clock.host);
  return text;
}

// A rank's process, as a node of the graph of waits: a rank waits in all its communicators at once.
using Node = std::pair<const TracedProcess*, int>;

std::optional<Node> node_of(const TracedCommunicator& communicator, int rank) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= communicator.members.size())
    return std::nullopt;
  const Member& member = communicator.members[static_cast<std::size_t>(rank)];
  if (member.trace == nullptr) return std::nullopt;
  return Node{member.process, member.trace->world_rank};
}

// Returns whether a send of one of two ranks and a receive of the other, which are both under way,
// can be one message. Then it moves, and neither waits for anything else.
bool meet(const TracedOperation& one, int rank, const TracedOperation& other, int peer) {
  constexpr std::int32_t kAny = -1;
  const auto tag = [](const TracedOperation& of) {
    return static_cast<std::int32_t>(of.record.kinds >> 32);
  };
  const auto alike = [&](std::int32_t a, std::int32_t b) { return a == b || a < 0 || b < 0; };
  return other.is_transfer() && other.under_way() && one.is_send() != other.is_send() &&
         one.record.peer == peer && (other.record.peer == rank || other.record.peer == kAny) &&
         alike(tag(one), tag(other));
}

bool is_met(const TracedCommunicator& communicator, int rank, const TracedOperation& transfer) {
  const TracedRank* const peer =
      communicator.members[static_cast<std::size_t>(transfer.record.peer)].trace;
  return peer != nullptr && std::any_of(peer->operations.begin(), peer->operations.end(),
                                        [&](const TracedOperation& other) {
                                          return meet(transfer, rank, other, transfer.record.peer);
                                        });
}

void add_waits(const TracedCommunicator& communicator, int rank, std::vector<Wait>& waits) {
  const Member& member = communicator.members[static_cast<std::size_t>(rank)];
  const auto size = static_cast<int>(communicator.members.size());
  if (const TracedRank& trace = *member.trace; trace.store_call != StoreCall::none &&
                                               trace.store_call_waits_for >= 0 &&
                                               trace.store_call_waits_for < size)
    waits.push_back({&communicator, rank, trace.store_call_waits_for, describe(trace.store_call),
                     member.job_time(trace.store_call_began),
                     time_in_store_call(trace, member.process->read_at)});
  int transfers = 0;
  for (const TracedOperation& each : member.trace->operations) {
    if (!each.under_way() || (each.is_transfer() && ++transfers > kMostTransfers)) continue;
    const auto add = [&](int peer) {
      waits.push_back({&communicator, rank, peer, numbered(each), member.job_time(each.began),
                       each.ended - each.began});
    };
    if (each.is_transfer()) {
      if (each.record.peer >= 0 && each.record.peer < size && each.record.peer != rank &&
          !is_met(communicator, rank, each))
        add(each.record.peer);
      continue;
    }
    const auto number = static_cast<std::int64_t>(each.record.number);
    bool any = false;
    int unknown = 0;
    for (int peer = 0; peer < size; ++peer) {
      const Member& other = communicator.members[static_cast<std::size_t>(peer)];
      if (peer == rank || (other.trace != nullptr && last_number(*other.trace) >= number)) continue;
      if (other.trace == nullptr && ++unknown > kMostUnknown) continue;
      add(peer);
      any = true;
    }
    const auto is_in_it = [&](int peer) {
      const Member& other = communicator.members[static_cast<std::size_t>(peer)];
      return other.trace == nullptr ||
             (last_number(*other.trace) == number && other.trace->last_collective()->under_way());
    };
    // A rank that has ended the operation has sent all that others wait for.
    if (!any && each.record.waits_for >= 0 && each.record.waits_for < size &&
        is_in_it(each.record.waits_for))
      add(each.record.waits_for);
  }
}

// Returns what at least half of the other ranks do not exceed.
template <typename Amount>
Amount median_of_others(const std::vector<Lateness>& ranks, std::size_t own,
                        Amount Lateness::*amount) {
  std::vector<Amount> others;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (i != own) others.push_back(ranks[i].*amount);
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>((others.size() - 1) / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

// `ranks` are all that might have been the last.
bool stands_out(const std::vector<Lateness>& ranks, std::size_t own, int operations) {
  const Lateness& late = ranks[own];
  const double chance = 1.0 / static_cast<double>(ranks.size());
  const double by_chance = operations * chance;
  const double often = by_chance + kDeviations * std::sqrt(by_chance * (1 - chance));
  return late.total >= kWorthTelling && late.last >= kLeastOften && late.last >= often &&
         late.last / kTimesTheOthers >= median_of_others(ranks, own, &Lateness::last) &&
         late.total / kTimesTheOthers >= median_of_others(ranks, own, &Lateness::total);
}

}  // namespace

Stragglers find_stragglers(const TracedCommunicator& communicator, std::int64_t since) {
  struct Entry {
    std::int64_t began;
    int rank;
  };
  std::map<std::uint64_t, std::vector<Entry>> by_number;
  std::map<int, Lateness> late;
  for (std::size_t rank = 0; rank < communicator.members.size(); ++rank) {
    const Member& member = communicator.members[rank];
    if (member.trace == nullptr) continue;
    late[static_cast<int>(rank)].rank = static_cast<int>(rank);
    for (const TracedOperation& each : member.trace->operations)
      if (!each.is_transfer() && member.job_time(each.began) > since)
        by_number[each.record.number].push_back(
            {member.job_time(each.began), static_cast<int>(rank)});
  }
  Stragglers found;
  for (auto& [number, entries] : by_number) {
    if (entries.size() < 2) continue;
    ++found.operations;
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.began < b.began; });
    const Entry& last = entries.back();
    const std::int64_t by = last.began - entries[(entries.size() - 1) / 2].began;
    Lateness& rank = late[last.rank];
    ++rank.last;
    rank.total = sum_of(rank.total, by);
    if (by > rank.worst) rank.worst_number = number;
    rank.worst = std::max(rank.worst, by);
  }
  for (const auto& [rank, each] : late) found.ranks.push_back(each);
  for (std::size_t i = 0; i < found.ranks.size(); ++i)
    found.ranks[i].stands_out = stands_out(found.ranks, i, found.operations);
  std::erase_if(found.ranks, [](const Lateness& each) { return each.last == 0; });
  std::stable_sort(found.ranks.begin(), found.ranks.end(),
                   [](const Lateness& a, const Lateness& b) { return a.total > b.total; });
  return found;
}

std::optional<Mismatch> find_mismatch(const TracedCommunicator& communicator) {
  std::map<std::uint64_t, std::map<std::string, std::vector<int>>> by_number;
  for (std::size_t rank = 0; rank < communicator.members.size(); ++rank) {
    const TracedRank* const trace = communicator.members[rank].trace;
    if (trace == nullptr) continue;
    for (const TracedOperation& each : trace->operations)
      if (!each.is_transfer())
        for (std::uint64_t call = 0; call < each.calls(); ++call)
          by_number[each.record.number + call][describe(each) + ", " + algorithm_of(each)]
              .push_back(static_cast<int>(rank));
  }
  for (const auto& [number, calls] : by_number) {
    if (calls.size() < 2) continue;
    Mismatch mismatch{number, {}};
    for (const auto& [call, ranks] : calls) mismatch.calls.push_back({call, ranks});
    return mismatch;
  }
  return std::nullopt;
}

std::vector<Wait> find_waits(const TracedJob& job) {
  std::vector<Wait> waits;
  for (const TracedCommunicator& communicator : job.communicators)
    for (std::size_t rank = 0; rank < communicator.members.size(); ++rank)
      if (communicator.members[rank].trace != nullptr)
        add_waits(communicator, static_cast<int>(rank), waits);
  return waits;
}

std::vector<Wait> find_cycle(const std::vector<Wait>& waits) {
  std::map<Node, std::vector<const Wait*>> out;
  for (const Wait& wait : waits)
    if (const auto node = node_of(*wait.communicator, wait.from)) out[*node].push_back(&wait);
  std::set<Node> closed;  // from which no cycle is reached
  for (const auto& [start, unused] : out) {
    struct Step {
      Node node;
      std::size_t next = 0;
    };
    std::vector<Step> path{{start}};
    std::vector<Wait> taken;
    while (!path.empty()) {
      Step& step = path.back();
      const auto edges = out.find(step.node);
      if (closed.contains(step.node) || edges == out.end() || step.next == edges->second.size()) {
        closed.insert(step.node);
        path.pop_back();
        if (!taken.empty()) taken.pop_back();
        continue;
      }
      const Wait& wait = *edges->second[step.next++];
      const auto target = node_of(*wait.communicator, wait.to);
      if (!target) continue;
      taken.push_back(wait);
      const auto before = std::find_if(path.begin(), path.end(),
                                       [&](const Step& each) { return each.node == *target; });
      if (before != path.end()) return {taken.begin() + (before - path.begin()), taken.end()};
      path.push_back({*target});
    }
  }
  return {};
}

std::string where_now(const TracedRank& rank, std::int64_t read_at) {
  if (rank.store_call != StoreCall::none) return where_in_store_call(rank, read_at);
  if (rank.state == RingState::failed) return "failed: " + rank.failure;
  if (rank.operations.empty())
    return rank.state == RingState::closed ? "closed" : "has called nothing yet";
  // A call may have begun and ended while the records were read.
  const auto since = [&](std::int64_t time) {
    return show_duration(std::max(read_at, time) - time);
  };
  if (const TracedOperation* const now = last_under_way(rank)) {
    const auto waits = now->record.waits_for;
    return fmt::format("in {} for {}{}", numbered(*now), since(now->began),
                       waits < 0 ? "" : fmt::format(", waits for rank {}", waits));
  }
  const TracedOperation& last = rank.operations.back();
  // Of a run of short calls, the time of the first is known.
  return fmt::format("{}; the last call was {}, which ended {}{} ago ({})",
                     rank.state == RingState::closed ? "closed" : "in no operation", numbered(last),
                     last.calls() > 1 ? "less than " : "", since(last.ended), outcome_of(last));
}

std::string list(const std::vector<TracedProcess>& processes) {
  std::string text;
  for (const TracedProcess& process : processes) {
    text += fmt::format("{} on {}: {}{}\n", process.source, process.host, process.command,
                        process.stopped ? "  (stopped by a signal)" : "");
    for (const TracedRank& rank : process.ranks)
      text += fmt::format("  {} rank {} of {}: {}\n", rank.name.empty() ? "-" : rank.name,
                          rank.rank, rank.size, where_now(rank, process.read_at));
  }
  return text;
}

std::string report(const TracedJob& job) {
  std::string text;
  for (const TracedCommunicator& communicator : job.communicators)
    text += fmt::format("{}\n{}{}{}{}", heading(communicator), places(communicator),
                        mismatch_text(communicator), absent(communicator),
                        stragglers_text(communicator));
  return text + waits_text(job) + clocks_text(job);
}

}  // namespace tutti::tools
