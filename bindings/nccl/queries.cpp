// Implements the functions that ask for versions and for what is known of a communicator, and those
// that set something for the process.
#include <algorithm>
#include <cstring>
#include <memory>

#include "bindings/nccl/communicator.h"
#include "bindings/nccl/errors.h"

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

NCCL_FUNCTION(ncclResult_t, ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t which,
              uint64_t* value) {
  return guarded([&] {
    const auto its = known(comm);
    require(value != nullptr, "the place for the statistic is null");
    *value = statistic(*its, which);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclSetEncryption, const ncclEncryptionConfig_t* config) {
  return guarded([&] { set_encryption(config); });
}

// The level of the log is read whenever a communicator is made.
NCCL_FUNCTION(void, ncclResetDebugInit) {}
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal();
void ncclResetDebugInitInternal() {}
