// A program that is built with NVIDIA's own nccl.h and runs on tutti's libnccl.so.2. It compares
// that header with tutti's declarations when it is compiled, and calls every function of the header
// with good and bad arguments. `./dev test-cuda --nccl` builds it, with the headers of PyPI's
// nvidia-nccl-cu13, once for each version of the header that it is given.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bindings/nccl/abi.h"

namespace nvidia {
#include <nccl.h>
}  // namespace nvidia

namespace {

template <typename Enum, typename Own>
constexpr bool same(Enum theirs, Own ours) {
  return static_cast<long long>(theirs) == static_cast<long long>(ours) &&
         sizeof(Enum) == sizeof(Own);
}
#define SAME(name) static_assert(same(nvidia::name, ::name), #name)
SAME(ncclSuccess);
SAME(ncclUnhandledCudaError);
SAME(ncclSystemError);
SAME(ncclInternalError);
SAME(ncclInvalidArgument);
SAME(ncclInvalidUsage);
SAME(ncclRemoteError);
SAME(ncclInProgress);
SAME(ncclSum);
SAME(ncclProd);
SAME(ncclMax);
SAME(ncclMin);
SAME(ncclAvg);
SAME(ncclNumOps);
SAME(ncclInt8);
SAME(ncclUint8);
SAME(ncclInt32);
SAME(ncclUint32);
SAME(ncclInt64);
SAME(ncclUint64);
SAME(ncclFloat16);
SAME(ncclFloat32);
SAME(ncclFloat64);
SAME(ncclBfloat16);
SAME(ncclFloat8e4m3);
SAME(ncclFloat8e5m2);
SAME(ncclNumTypes);
SAME(ncclScalarDevice);
SAME(ncclScalarHostImmediate);
SAME(ncclStatGpuMemSuspend);
SAME(ncclStatGpuMemTotal);

// A field is at the same place. Our struct is that of the newest header, and older ones end
// earlier.
#define FIELD(type, field)                                                           \
  static_assert(offsetof(nvidia::type, field) == offsetof(::type, field) &&          \
                    sizeof(nvidia::type{}.field) == sizeof(decltype(::type::field)), \
                #type "::" #field)
FIELD(ncclUniqueId, internal);
FIELD(ncclConfig_t, size);
FIELD(ncclConfig_t, magic);
FIELD(ncclConfig_t, version);
FIELD(ncclConfig_t, blocking);
FIELD(ncclConfig_t, cgaClusterSize);
FIELD(ncclConfig_t, minCTAs);
FIELD(ncclConfig_t, maxCTAs);
FIELD(ncclConfig_t, netName);
FIELD(ncclConfig_t, splitShare);
FIELD(ncclConfig_t, trafficClass);
FIELD(ncclConfig_t, commName);
FIELD(ncclConfig_t, collnetEnable);
FIELD(ncclConfig_t, CTAPolicy);
FIELD(ncclConfig_t, shrinkShare);
FIELD(ncclConfig_t, nvlsCTAs);
FIELD(ncclConfig_t, graphStreamOrdering);
FIELD(ncclSimInfo_t, estimatedTime);
static_assert(sizeof(nvidia::ncclConfig_t) <= sizeof(::ncclConfig_t));
static_assert(sizeof(nvidia::ncclSimInfo_t) == sizeof(::ncclSimInfo_t));
static_assert(NCCL_API_MAGIC == kApiMagic && NCCL_CONFIG_UNDEF_INT == kUndefined);
static_assert(NCCL_SPLIT_NOCOLOR == kNoColor && NCCL_SHRINK_ABORT == kShrinkAbort);
#if NCCL_VERSION_CODE >= 23200
FIELD(ncclConfig_t, nvlsHostMode);
FIELD(ncclCollConfig_t, ext);
FIELD(ncclCollConfig_t, minCTAs);
FIELD(ncclCollConfig_t, algSelection);
FIELD(ncclCollConfig_t, forceAlgSelection);
FIELD(ncclCollConfig_t, userProfilerTag);
FIELD(ncclCollConfig_t, launchCompletionEvent);
FIELD(ncclEncryptionConfig_t, mode);
FIELD(ncclEncryptionConfig_t, psk);
static_assert(sizeof(nvidia::ncclConfig_t) == sizeof(::ncclConfig_t));
static_assert(sizeof(nvidia::ncclCollConfig_t) == sizeof(::ncclCollConfig_t));
static_assert(NCCL_VERSION_CODE == kVersion);
#endif

int calls = 0, wrong = 0;

}  // namespace

namespace nvidia {

void expect(ncclResult_t result, ncclResult_t wanted, const char* call) {
  ++calls;
  if (result == wanted) return;
  ++wrong;
  std::printf("%s gave %d where %d is expected: %s\n", call, result, wanted,
              ncclGetLastError(nullptr));
}
#define GOOD(call) expect(call, ncclSuccess, #call)
#define BAD(call) expect(call, ncclInvalidArgument, #call)
#define ABSENT(call) expect(call, ncclInvalidUsage, #call)

void collectives(ncclComm_t comm, ncclResult_t wanted) {
  int data[4] = {1, 2, 3, 4}, result[4] = {};
#define CALL(call) expect(call, wanted, #call)
  CALL(ncclAllReduce(data, result, 4, ncclInt32, ncclSum, comm, nullptr));
  CALL(ncclReduce(data, result, 4, ncclInt32, ncclMax, 0, comm, nullptr));
  CALL(ncclBroadcast(data, result, 4, ncclInt32, 0, comm, nullptr));
  CALL(ncclBcast(data, 4, ncclInt32, 0, comm, nullptr));
  CALL(ncclAllGather(data, result, 4, ncclInt32, comm, nullptr));
  CALL(ncclReduceScatter(data, result, 4, ncclInt32, ncclMin, comm, nullptr));
  CALL(ncclAlltoAll(data, result, 4, ncclInt32, comm, nullptr));
  CALL(ncclGather(data, result, 4, ncclInt32, 0, comm, nullptr));
  CALL(ncclScatter(data, result, 4, ncclInt32, 0, comm, nullptr));
  GOOD(ncclGroupStart());
  CALL(ncclSend(data, 4, ncclInt32, 0, comm, nullptr));
  CALL(ncclRecv(result, 4, ncclInt32, 0, comm, nullptr));
  CALL(ncclGroupEnd());
#if NCCL_VERSION_CODE >= 23102
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  CALL(ncclAllReduceConfig(data, result, 4, ncclInt32, ncclSum, comm, nullptr, &config));
  CALL(ncclReduceConfig(data, result, 4, ncclInt32, ncclMax, 0, comm, nullptr, &config));
  CALL(ncclBroadcastConfig(data, result, 4, ncclInt32, 0, comm, nullptr, &config));
  CALL(ncclAllGatherConfig(data, result, 4, ncclInt32, comm, nullptr, &config));
  CALL(ncclReduceScatterConfig(data, result, 4, ncclInt32, ncclMin, comm, nullptr, &config));
  CALL(ncclAlltoAllConfig(data, result, 4, ncclInt32, comm, nullptr, &config));
  CALL(ncclGatherConfig(data, result, 4, ncclInt32, 0, comm, nullptr, &config));
  CALL(ncclScatterConfig(data, result, 4, ncclInt32, 0, comm, nullptr, &config));
#endif
  if (wanted == ncclSuccess && std::memcmp(data, result, sizeof data) != 0) {
    ++wrong;
    std::printf("a collective of one rank is not what it was given\n");
  }
}

void queries(ncclComm_t comm) {
  int number = -1;
  ncclResult_t error = ncclInternalError;
  std::uint64_t bytes = 0;
  GOOD(ncclCommCount(comm, &number));
  BAD(ncclCommCount(nullptr, &number));
  GOOD(ncclCommUserRank(comm, &number));
  BAD(ncclCommUserRank(comm, nullptr));
  GOOD(ncclCommCuDevice(comm, &number));
  BAD(ncclCommCuDevice(nullptr, &number));
  GOOD(ncclCommGetAsyncError(comm, &error));
  BAD(ncclCommGetAsyncError(comm, nullptr));
  expect(error, ncclSuccess, "the asynchronous error");
  GOOD(ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes));
  BAD(ncclCommMemStats(comm, ncclStatGpuMemTotal, nullptr));
  ABSENT(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
  ABSENT(ncclCommResume(comm));
}

void memory(ncclComm_t comm) {
  void *buffer = nullptr, *handle = nullptr;
  ncclWindow_t window = nullptr;
  GOOD(ncclMemAlloc(&buffer, 4096));
  BAD(ncclMemAlloc(nullptr, 4096));
  GOOD(ncclCommRegister(comm, buffer, 4096, &handle));
  BAD(ncclCommRegister(comm, nullptr, 4096, &handle));
  GOOD(ncclCommDeregister(comm, handle));
  BAD(ncclCommDeregister(comm, handle));
  GOOD(ncclCommWindowRegister(comm, buffer, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
  BAD(ncclCommWindowRegister(comm, buffer, 4096, &window, 4));
  BAD(ncclWinGetUserPtr(comm, window, &handle));
  GOOD(ncclCommWindowRegister(comm, buffer, 4096, &window, NCCL_WIN_DEFAULT));
  GOOD(ncclWinGetUserPtr(comm, window, &handle));
  if (handle != buffer) ++wrong;
  GOOD(ncclCommWindowDeregister(comm, window));
  BAD(ncclCommWindowDeregister(comm, window));
  ABSENT(ncclPutSignal(buffer, 1, ncclInt8, 0, window, 0, 0, 0, 0, comm, nullptr));
  ABSENT(ncclSignal(0, 0, 0, 0, comm, nullptr));
  ABSENT(ncclWaitSignal(0, nullptr, comm, nullptr));
  GOOD(ncclMemFree(buffer));
  BAD(ncclMemFree(buffer));
}

void reductions(ncclComm_t comm) {
  ncclRedOp_t op{};
  float scalar = 2, data = 3;
  GOOD(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
  BAD(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarHostImmediate, comm));
  GOOD(ncclAllReduce(&data, &data, 1, ncclFloat32, op, comm, nullptr));
  if (data != 6) ++wrong;
  GOOD(ncclRedOpDestroy(op, comm));
  BAD(ncclRedOpDestroy(op, comm));
}

void parameters() {
  ncclParamHandle_t handle = nullptr;
  std::int8_t i8 = 0;
  std::int16_t i16 = 0;
  std::int32_t i32 = 0;
  std::int64_t i64 = 0;
  std::uint8_t u8 = 0;
  std::uint16_t u16 = 0;
  std::uint32_t u32 = 0;
  std::uint64_t u64 = 0;
  const char* text = nullptr;
  const char** keys = nullptr;
  char raw[16];
  int length = 0;
  setenv("NCCL_IB_DISABLE", "1", 1);
  GOOD(ncclParamBind(&handle, "NCCL_IB_DISABLE"));
  BAD(ncclParamBind(&handle, "NCCL_NONE"));
  GOOD(ncclParamGetI8(handle, &i8));
  GOOD(ncclParamGetI16(handle, &i16));
  GOOD(ncclParamGetI32(handle, &i32));
  GOOD(ncclParamGetI64(handle, &i64));
  GOOD(ncclParamGetU8(handle, &u8));
  GOOD(ncclParamGetU16(handle, &u16));
  GOOD(ncclParamGetU32(handle, &u32));
  GOOD(ncclParamGetU64(handle, &u64));
  if (i8 + i16 + i32 + i64 + u8 + u16 + static_cast<long>(u32) + static_cast<long>(u64) != 8)
    ++wrong;
  BAD(ncclParamGetI8(nullptr, &i8));
  GOOD(ncclParamGetStr(handle, &text));
  GOOD(ncclParamGet(handle, raw, sizeof raw, &length));
  BAD(ncclParamGet(handle, raw, 1, &length));
  GOOD(ncclParamGetParameter("NCCL_IB_DISABLE", &text, &length));
  BAD(ncclParamGetParameter(nullptr, &text, &length));
  GOOD(ncclParamGetAllParameterKeys(&keys, &length));
  ncclParamDumpAll();
}

void starts() {
  ncclUniqueId id, other;
  ncclComm_t comm = nullptr, part = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int version = 0, excluded = 0;
  GOOD(ncclGetVersion(&version));
  BAD(ncclGetVersion(nullptr));
  GOOD(ncclGetUniqueId(&id));
  BAD(ncclGetUniqueId(nullptr));
  GOOD(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  BAD(ncclCommInitRankConfig(&part, 1, id, 2, &config));
  queries(comm);
  memory(comm);
  reductions(comm);
  collectives(comm, ncclSuccess);
  collectives(nullptr, ncclInvalidArgument);
  GOOD(ncclCommSplit(comm, 0, 0, &part, nullptr));
  BAD(ncclCommSplit(comm, -2, 0, &part, nullptr));
  BAD(ncclCommShrink(comm, &excluded, 1, &part, nullptr, NCCL_SHRINK_DEFAULT));
  BAD(ncclCommGrow(comm, 1, nullptr, -1, &part, nullptr));
  GOOD(ncclCommGetUniqueId(comm, &other));
  BAD(ncclCommGetUniqueId(nullptr, &other));
  ncclSimInfo_t simulated = NCCL_SIM_INFO_INITIALIZER;
  GOOD(ncclGroupStart());
  ABSENT(ncclGroupSimulateEnd(&simulated));
  BAD(ncclCommRevoke(comm, 1));
  GOOD(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
  GOOD(ncclCommDestroy(comm));
  BAD(ncclCommDestroy(comm));
  GOOD(ncclCommInitRankScalable(&comm, 1, 0, 1, &other, &config));
  BAD(ncclCommInitRankScalable(&part, 1, 0, 0, &other, &config));
  GOOD(ncclCommFinalize(comm));
  BAD(ncclCommFinalize(nullptr));
  GOOD(ncclCommAbort(comm));
  BAD(ncclCommAbort(comm));
  GOOD(ncclGetUniqueId(&id));
  GOOD(ncclCommInitRank(&comm, 1, id, 0));
  BAD(ncclCommInitRank(&part, 0, id, 0));
  GOOD(ncclCommDestroy(comm));
  GOOD(ncclCommInitAll(&comm, 1, nullptr));
  BAD(ncclCommInitAll(nullptr, 1, nullptr));
  GOOD(ncclCommDestroy(comm));
#if NCCL_VERSION_CODE >= 23200
  ncclEncryptionConfig_t encryption = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  GOOD(ncclSetEncryption(&encryption));
  BAD(ncclSetEncryption(nullptr));
#endif
  for (int result = 0; result < ncclNumResults; ++result)
    if (*ncclGetErrorString(static_cast<ncclResult_t>(result)) == '\0') ++wrong;
}

}  // namespace nvidia

int main() {
  nvidia::starts();
  nvidia::parameters();
  std::printf("nccl.h of NCCL %d: %d calls, %d wrong\n", NCCL_VERSION_CODE, calls, wrong);
  return wrong == 0 ? 0 : 1;
}
