#include "collectives/algorithms/stages.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>
#include <utility>

#include "collectives/schedule/rank_arithmetic.h"

namespace tutti::collectives {
namespace {

/// Returns the number of rounds: shares travel around the ring one chunk of each at a time, because
/// a member that sent all of a large share before it received would fill the windows all around.
std::size_t rounds(const Shares& shares) {
  std::size_t most = 0;
  for (const auto& share : shares) most = std::max(most, share.size());
  return most;
}

}  // namespace

Group::Group(std::vector<int> ranks, int rank)
    : ranks_(std::move(ranks)), size_(static_cast<int>(ranks_.size())) {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  assert(found != ranks_.end() && "a rank plans for groups that it is in");
  index_ = static_cast<int>(found - ranks_.begin());
}

Group Group::all(const PlanRequest& request, int first) {
  Group group;
  group.size_ = group.around_ = request.ranks;
  group.first_ = wrap(first, request.ranks);
  group.last_ = wrap(first - 1, request.ranks);
  group.index_ = wrap(request.rank - first, request.ranks);
  return group;
}

Group Group::regular(int first, int stride, int size, int last, int index) {
  assert(0 <= index && index < size && first >= 0 && stride >= 0);
  Group group;
  group.first_ = first;
  group.stride_ = stride;
  group.size_ = size;
  group.last_ = last;
  group.index_ = index;
  group.around_ = std::numeric_limits<int>::max();
  return group;
}

int Group::at(int index) const {
  const int member = wrap(index, size());
  if (!ranks_.empty()) return ranks_[member];
  if (member == size() - 1) return last_;
  return static_cast<int>((first_ + std::int64_t{member} * stride_) % around_);
}

std::vector<Slice> blocks_around(int first, int count, int ranks) {
  assert(0 <= first && first < ranks && 1 <= count && count <= ranks);
  const int before_wrap = std::min(count, ranks - first);
  std::vector<Slice> blocks{{first, before_wrap}};
  if (count > before_wrap) blocks.push_back({0, count - before_wrap});
  return blocks;
}

void ring_reduce_scatter(const Verbs& lane, const Group& group, const Shares& shares,
                         const Between& places) {
  assert(shares.size() == static_cast<std::size_t>(group.size()));
  const int last = group.size() - 1;
  for (std::size_t round = 0; round < rounds(shares); ++round)
    for (int stage = 0; stage <= last; ++stage) {
      const auto& share = shares[ring_chunk(group.index(), stage + 1, group.size())];
      if (round >= share.size()) continue;
      const int chunk = share[round];
      std::vector<Operand> in{{places.from, chunk}};
      if (stage > 0) in.insert(in.begin(), peer(group.previous()));
      const Operand out = stage < last ? peer(group.next()) : Operand{places.to, chunk};
      const auto step = lane.step(std::move(in), {out}, chunk);
      if (stage == last && places.completes) step.completes();
    }
}

void ring_all_gather(const Verbs& lane, const Group& group, const Shares& shares) {
  assert(shares.size() == static_cast<std::size_t>(group.size()));
  const int last = group.size() - 1;
  if (last == 0) return;
  for (std::size_t round = 0; round < rounds(shares); ++round)
    for (int stage = 0; stage <= last; ++stage) {
      const auto& share = shares[ring_chunk(group.index(), stage, group.size())];
      if (round >= share.size()) continue;
      if (stage == 0)
        lane.send_output(share[round], {group.next()});
      else if (stage < last)
        lane.receive_send(group.previous(), share[round], {group.next()});
      else
        lane.receive(group.previous(), share[round]);
    }
}

}  // namespace tutti::collectives
