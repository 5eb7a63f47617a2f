#include "runtime/engine/host_engine.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti {

std::unique_ptr<Engine> make_host_engine(Transport& transport, Recorder& recorder,
                                         std::function<void()> worker_done) {
  return std::make_unique<HostEngine>(transport, recorder, std::move(worker_done));
}

HostEngine::HostEngine(Transport& transport, Recorder& recorder, std::function<void()> worker_done)
    : Engine(transport.own_status_page(), recorder),
      transport_(transport),
      leaves_at_once_(transport.leaves_at_once()),
      workers_(std::move(worker_done)) {}

// Allocates the scratch as well if no call is under way, so that starting the call allocates
// nothing.
std::shared_ptr<BoundProgram> HostEngine::bind(std::vector<Program> stripes) {
  assert(!stripes.empty());
  auto bound = std::make_shared<HostProgram>(std::move(stripes[0]), transport_);
  for (std::size_t number = 1; number < stripes.size(); ++number)
    bound->others.push_back(std::make_unique<HostProgram>(std::move(stripes[number]), transport_));
  if (idle()) scratch(bound->program);
  recorder_.end_run();  // the address of a program tells which calls repeat
  return bound;
}

std::byte* HostEngine::grow_scratch(std::size_t bytes) {
  assert(bytes > memory_bytes() && bytes % 64 == 0);
  scratch_ = {static_cast<std::byte*>(std::aligned_alloc(64, bytes)), std::free};
  scratch_bytes_ = scratch_ != nullptr ? bytes : 0;
  if (scratch_ == nullptr)
    throw Error(ErrorKind::unavailable, fmt::format("no memory for {} bytes of scratch", bytes));
  return scratch_.get();
}

bool HostEngine::start(BoundProgram& bound, CallBuffers& buffers, bool in_threads, int attempts) {
  auto& host = static_cast<HostProgram&>(bound);
  const Program& program = host.program;
  buffers.scratch = scratch(program);
  if (!program.variable) buffers.blocks = nullptr;
  const auto number = static_cast<std::uint32_t>(
      program.variable ? enter(StatusPage::entry_of(buffers.blocks->call)) : enter(host.entry));
  const ResultStores stores = stores_for(buffers.result_bytes, buffers.input, buffers.output);
  execution_.start(host, buffers, number, stores);
  if (!host.others.empty()) [[unlikely]]
    workers_.start(host, buffers, number, stores, in_threads);
  const int soon = host.soon ? std::min(attempts, Record::kSoonPolls) : 0;
  for (int polls = 0; polls < soon; ++polls) {
    if (!attempt()) continue;
    // A call that waited for nobody may be late, and one that waited for a moment is not.
    if (polls == 0 || !recorder_.repeats(&host)) record_soon(&host, host.entry);
    return true;
  }
  record();
  return advance(attempts - soon);
}

bool HostEngine::advance(int attempts) {
  for (; attempts > 0; --attempts)
    if (attempt()) {
      recorder_.end();
      return true;
    }
  return false;
}

}  // namespace tutti
