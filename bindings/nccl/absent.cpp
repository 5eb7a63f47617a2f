// Defines the functions of NCCL that tutti does not do: each says so in ncclGetLastError, and never
// succeeds.
#include <string>

#include "bindings/nccl/errors.h"
#include "bindings/nccl/group.h"

namespace tutti::nccl {
namespace {

ncclResult_t absent(const char* function, const char* instead) noexcept {
  return in_group([&]() -> ncclResult_t {
    throw Failure(ncclInvalidUsage,
                  std::string(function) + " is not supported by tutti's libnccl.so.2: " + instead);
  });
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

// Arguments are not read, so that none need be declared: the caller removes them from the stack.
#define NCCL_ABSENT(name, instead) \
  NCCL_FUNCTION(ncclResult_t, name) { return absent(#name, instead); }

#define NCCL_NO_WINDOWS "the program's kernels reach no windows of other ranks"
NCCL_ABSENT(ncclGetLsaMultimemDevicePointer, NCCL_NO_WINDOWS)
NCCL_ABSENT(ncclGetMultimemDevicePointer, NCCL_NO_WINDOWS)
NCCL_ABSENT(ncclGetLsaDevicePointer, NCCL_NO_WINDOWS)
NCCL_ABSENT(ncclGetPeerDevicePointer, NCCL_NO_WINDOWS)
NCCL_ABSENT(ncclGetMultimemDeviceLeInfo, NCCL_NO_WINDOWS)
NCCL_ABSENT(ncclGetCftDeviceLeInfo, NCCL_NO_WINDOWS)
NCCL_ABSENT(ncclGetPeerDeviceLeInfo, NCCL_NO_WINDOWS)

#define NCCL_NO_PUT "it has no one-sided communication; use ncclSend and ncclRecv"
NCCL_ABSENT(ncclPutSignal, NCCL_NO_PUT)
NCCL_ABSENT(ncclSignal, NCCL_NO_PUT)
NCCL_ABSENT(ncclWaitSignal, NCCL_NO_PUT)

#define NCCL_NO_DEVICE_API "it has no interface for the program's kernels"
NCCL_ABSENT(ncclDevCommCreate, NCCL_NO_DEVICE_API)
NCCL_ABSENT(ncclDevCommDestroy, NCCL_NO_DEVICE_API)
NCCL_ABSENT(ncclLsaBarrierCreateRequirement, NCCL_NO_DEVICE_API)
NCCL_ABSENT(ncclGinBarrierCreateRequirement, NCCL_NO_DEVICE_API)
NCCL_ABSENT(ncclGinInboxA2ACreateRequirement, NCCL_NO_DEVICE_API)
NCCL_ABSENT(ncclGinOutboxCreateRequirement, NCCL_NO_DEVICE_API)
NCCL_ABSENT(ncclLLA2ACreateRequirement, NCCL_NO_DEVICE_API)
NCCL_FUNCTION(int, ncclLLA2ACalcSlots) {
  absent("ncclLLA2ACalcSlots", NCCL_NO_DEVICE_API);
  return -1;
}

NCCL_ABSENT(ncclCommSuspend, "it keeps its memory until the communicator is destroyed")
NCCL_ABSENT(ncclCommResume, "no communicator is suspended")

// The group ends without its calls.
NCCL_FUNCTION(ncclResult_t, ncclGroupSimulateEnd) {
  absent("ncclGroupSimulateEnd",
         "it does not predict the time of a group (tutti-perf --explain does)");
  return guarded([] { return thread_group().end(); });
}
