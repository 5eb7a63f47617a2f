#include "runtime/engine/program_cache.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti {

Schedule ProgramCache::plan(const CallSignature& call) const {
  if ((call.algorithm & kOwnAlgorithm) != 0) return own_.schedule(call.algorithm);
  PlanRequest request = request_;
  request.what = call.what;
  request.root = call.root;
  return algorithms()[call.algorithm].plan(request);
}

std::shared_ptr<BoundProgram> ProgramCache::get(const CallKey& key) {
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() >= kMost) drop_least_recent();
    const CallSignature& call = key.signature;
    const Schedule schedule = plan(call);
    const auto stripes = static_cast<std::uint64_t>(key.stripes);
    const auto stripe = [&](std::uint64_t number) {
      return compile(schedule, call, key.message_bytes, key.lends, {number, stripes});
    };
    auto bound = std::make_shared<BoundProgram>(stripe(0), transport_);
    for (std::uint64_t number = 1; number < stripes; ++number)
      bound->others.push_back(std::make_unique<BoundProgram>(stripe(number), transport_));
    found = entries_.emplace(key, Entry{std::move(bound)}).first;
  }
  found->second.used = ++uses_;
  return found->second.bound;
}

void ProgramCache::drop_least_recent() {
  entries_.erase(
      std::min_element(entries_.begin(), entries_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

std::byte* ProgramCache::grow(std::size_t scratch_bytes) {
  scratch_ = {static_cast<std::byte*>(std::aligned_alloc(64, scratch_bytes)),
              std::free};  // `scratch_bytes` is a multiple of 64
  scratch_bytes_ = scratch_ != nullptr ? scratch_bytes : 0;
  if (scratch_ == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("no memory for {} bytes of scratch", scratch_bytes));
  return scratch_.get();
}

}  // namespace tutti
