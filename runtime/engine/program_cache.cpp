#include "runtime/engine/program_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace tutti {

Schedule ProgramCache::plan(const CallSignature& call) const {
  if ((call.algorithm & kOwnAlgorithm) != 0) return own_.schedule(call.algorithm);
  assert(call.algorithm < algorithms().size());
  PlanRequest request = request_;
  request.what = call.what;
  request.root = call.root;
  return algorithms()[call.algorithm].plan(request);
}

std::shared_ptr<BoundProgram> ProgramCache::get(const CallKey& key) {
  assert(key.stripes >= 1 && key.stripes <= kMostStripes && entries_.size() <= kMost);
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() >= kMost) drop_least_recent();
    const CallSignature& call = key.signature;
    const Schedule schedule = plan(call);
    const auto stripes = static_cast<std::uint64_t>(key.stripes);
    std::vector<Program> programs;
    for (std::uint64_t number = 0; number < stripes; ++number)
      programs.push_back(
          compile(schedule, call, key.message_bytes, key.zero_copy, {number, stripes}));
    auto bound = engine_.bind(std::move(programs));
    found = entries_.emplace(key, Entry{std::move(bound)}).first;
  }
  assert(found->second.bound != nullptr && entries_.size() <= kMost);
  found->second.used = ++uses_;
  return found->second.bound;
}

void ProgramCache::drop_least_recent() {
  assert(!entries_.empty());
  entries_.erase(
      std::min_element(entries_.begin(), entries_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

}  // namespace tutti
