#include "runtime/program_cache.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti {

BoundProgram& ProgramCache::find_or_make(const CallKey& key) {
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() >= kMost) drop_least_recent();
    const CallSignature& call = key.signature;
    const Schedule schedule =
        algorithms()[call.algorithm].plan({call.what, rank_, size_, call.root});
    Program program = compile(schedule, call, key.message_bytes);
    found =
        entries_.emplace(key, std::make_unique<Entry>(key, std::move(program), transport_)).first;
  }
  last_ = found->second.get();
  last_->used = ++uses_;
  return last_->bound;
}

void ProgramCache::drop_least_recent() {
  const auto oldest = std::min_element(
      entries_.begin(), entries_.end(),
      [](const auto& a, const auto& b) { return a.second->used < b.second->used; });
  if (oldest->second.get() == last_) last_ = nullptr;
  entries_.erase(oldest);
}

std::byte* ProgramCache::scratch() {
  const std::size_t bytes = last_->bound.program.scratch_bytes;
  if (bytes > scratch_bytes_) {
    scratch_ = {static_cast<std::byte*>(std::aligned_alloc(64, bytes)),
                std::free};  // a multiple of 64
    if (scratch_ == nullptr)
      throw Error(ErrorKind::unavailable, fmt::format("no memory for {} bytes of scratch", bytes));
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

}  // namespace tutti
