// Implements the functions that ask: for versions, the numbers of a communicator, memory, and
// parameters.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bindings/nccl/communicator.h"
#include "bindings/nccl/errors.h"
#include "bindings/nccl/process.h"

namespace tutti::nccl {
namespace {

// Returns the communicator if its numbers are known.
std::shared_ptr<const ncclComm> known(ncclComm_t comm) {
  std::shared_ptr<ncclComm> its = whole(comm);
  const ncclResult_t state = its->state.load(std::memory_order_acquire);
  if (state != ncclSuccess && state != ncclInProgress) throw Failure(state, its->error);
  require(its->is_made, "the communicator is still being made");
  return its;
}

// Lists the memory that ncclMemAlloc has allocated on the host.
using HostBlocks = std::set<void*>;

void* allocate_on_host(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  if (bytes > std::numeric_limits<std::size_t>::max() - kPage) throw std::bad_alloc();
  void* const memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  auto& blocks = of_process<HostBlocks>();
  const std::lock_guard lock(blocks.mutex);
  blocks.value.insert(memory);
  return memory;
}

bool free_on_host(void* memory) {
  auto& blocks = of_process<HostBlocks>();
  const std::lock_guard lock(blocks.mutex);
  if (blocks.value.erase(memory) == 0) return false;
  std::free(memory);
  return true;
}

std::uint64_t statistic(const ncclComm& comm, ncclCommMemStat_t which) {
  require(which >= ncclStatGpuMemSuspend && which <= ncclStatGpuMemTotal,
          "the statistic is none of ncclCommMemStat_t");
  const bool held = which == ncclStatGpuMemPersist || which == ncclStatGpuMemTotal;
  return held ? comm.made->memory_bytes() : 0;
}

ncclTeam_t team_of(ncclComm_t comm, bool everybody) {
  ncclTeam_t team{0, 0, 0};
  guarded([&] {
    const auto its = known(comm);
    team = everybody ? ncclTeam_t{its->size, its->rank, 1} : ncclTeam_t{1, 0, 1};
  });
  return team;
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_FUNCTION(ncclResult_t, ncclGetVersion, int* version) {
  return guarded([&] {
    require(version != nullptr, "the place for the version is null");
    *version = kVersion;
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommCount, const ncclComm_t comm, int* count) {
  return guarded([&] {
    const auto its = known(comm);
    require(count != nullptr, "the place for the number of ranks is null");
    *count = its->size;
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int* rank) {
  return guarded([&] {
    const auto its = known(comm);
    require(rank != nullptr, "the place for the rank is null");
    *rank = its->rank;
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int* device) {
  return guarded([&] {
    const auto its = known(comm);
    require(device != nullptr, "the place for the device is null");
    *device = its->device;
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommQueryProperties, ncclComm_t comm,
              ncclCommProperties_t* properties) {
  return guarded([&] {
    const auto its = known(comm);
    require(properties != nullptr && properties->magic == kApiMagic &&
                properties->size >= offsetof(ncclCommProperties_t, nLsaTeams),
            "the ncclCommProperties_t was not set by NCCL_COMM_PROPERTIES_INITIALIZER");
    ncclCommProperties_t filled{};
    filled.rank = its->rank;
    filled.nRanks = its->size;
    filled.cudaDev = filled.nvmlDev = its->device;
    filled.nLsaTeams = its->size;
    constexpr std::size_t kFirst = offsetof(ncclCommProperties_t, rank);
    std::memcpy(reinterpret_cast<char*>(properties) + kFirst,
                reinterpret_cast<const char*>(&filled) + kFirst,
                std::min(properties->size, sizeof filled) - kFirst);
  });
}

NCCL_FUNCTION(ncclTeam_t, ncclTeamWorld, ncclComm_t comm) { return team_of(comm, true); }
NCCL_FUNCTION(ncclTeam_t, ncclTeamRail, ncclComm_t comm) { return team_of(comm, true); }
NCCL_FUNCTION(ncclTeam_t, ncclTeamLsa, ncclComm_t comm) { return team_of(comm, false); }
NCCL_FUNCTION(ncclTeam_t, ncclTeamCftMultimem, ncclComm_t comm) { return team_of(comm, false); }
NCCL_FUNCTION(ncclTeam_t, ncclTeamCft, ncclComm_t comm, int) { return team_of(comm, false); }
NCCL_FUNCTION(int, ncclTeamRankToWorld, ncclComm_t comm, ncclTeam_t team, int rank) {
  return team_of(comm, true).rank + (rank - team.rank) * team.stride;
}
NCCL_FUNCTION(int, ncclTeamRankToLsa, ncclComm_t, ncclTeam_t team, int rank) {
  return (rank - team.rank) * team.stride;
}

NCCL_FUNCTION(ncclResult_t, ncclMemAlloc, void** memory, size_t bytes) {
  return guarded([&] {
    require(memory != nullptr, "the place for the address is null");
    *memory = nullptr;
    if (bytes == 0) return;
    const Gpu* const gpu = Gpu::find();
    *memory = gpu != nullptr ? gpu->allocate(bytes) : allocate_on_host(bytes);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclMemFree, void* memory) {
  return guarded([&] {
    if (memory == nullptr || free_on_host(memory)) return;
    const Gpu* const gpu = Gpu::find();
    require(gpu != nullptr, "the memory is none of ncclMemAlloc");
    gpu->free(memory);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t which,
              uint64_t* value) {
  return guarded([&] {
    const auto its = known(comm);
    require(value != nullptr, "the place for the statistic is null");
    *value = statistic(*its, which);
  });
}

// Network devices work with the host's memory that is registered, so that long messages to other
// machines are not copied there.
NCCL_FUNCTION(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void* buffer, size_t bytes,
              void** handle) {
  return guarded([&] {
    const auto its = ready(comm);
    require(buffer != nullptr && bytes > 0 && handle != nullptr,
            "the buffer or the place for the handle is null, or the size is 0");
    const Calling calling(*its);
    auto registered = std::make_unique<std::optional<tutti::RegisteredMemory>>();
    if (its->gpu == nullptr || !its->gpu->owns(buffer))
      *registered = tutti::RegisteredMemory::of(calling.communicator(), buffer, bytes);
    its->registered.push_back(std::move(registered));
    *handle = its->registered.back().get();
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void* handle) {
  return guarded([&] {
    const auto its = whole(comm);
    if (handle == nullptr) return;
    const std::lock_guard lock(its->calls);
    require(
        std::erase_if(its->registered, [&](const auto& each) { return each.get() == handle; }) == 1,
        "the handle is none of ncclCommRegister for this communicator");
  });
}

NCCL_FUNCTION(ncclResult_t, ncclSetEncryption, const ncclEncryptionConfig_t* config) {
  return guarded([&] { set_encryption(config); });
}

// The level of the log is read whenever a communicator is made.
NCCL_FUNCTION(void, ncclResetDebugInit) {}
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal();
void ncclResetDebugInitInternal() {}
