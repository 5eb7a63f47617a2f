// Declares NCCL's ABI, which programs that were built with NVIDIA's nccl.h use: handles, numbers of
// enumerations, layouts of structs (NCCL 2.32). tests/bindings/nccl compares it with that header.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

extern "C" {

using ncclComm_t = struct ncclComm*;
using ncclWindow_t = struct ncclWindow_vidmem*;
using ncclParamHandle_t = const struct ncclParamHandle*;
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8,
};

enum ncclRedOp_t : int { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps };

enum ncclDataType_t : int {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16,
  ncclFloat8e4m3,
  ncclFloat8e5m2,
  ncclNumTypes,
};

enum ncclScalarResidence_t : int { ncclScalarDevice, ncclScalarHostImmediate };
enum ncclCommMemStat_t : int {
  ncclStatGpuMemSuspend,
  ncclStatGpuMemSuspended,
  ncclStatGpuMemPersist,
  ncclStatGpuMemTotal,
};

constexpr int kUndefined = INT_MIN;                // NCCL_CONFIG_UNDEF_INT
constexpr unsigned kApiMagic = 0xcafebeef;         // NCCL_API_MAGIC
constexpr unsigned kSimulationMagic = 0x74685283;  // of NCCL_SIM_INFO_INITIALIZER
constexpr int kVersion = 23203;                    // NCCL_VERSION_CODE
constexpr int kNoColor = -1;                       // NCCL_SPLIT_NOCOLOR
constexpr int kShrinkAbort = 1;                    // NCCL_SHRINK_ABORT
constexpr int kWindowFlags = 3;  // NCCL_WIN_COLL_SYMMETRIC and NCCL_WIN_STRICT_ORDERING

/// Each struct that a program initialises begins with its size, a magic number and the version of
/// the header. Fields are only appended.
struct ncclConfig_t {
  std::size_t size = sizeof(ncclConfig_t);
  unsigned magic = kApiMagic;
  unsigned version = kVersion;
  int blocking = kUndefined;
  int cgaClusterSize = kUndefined;
  int minCTAs = kUndefined;
  int maxCTAs = kUndefined;
  const char* netName = nullptr;
  int splitShare = kUndefined;
  int trafficClass = kUndefined;
  const char* commName = nullptr;
  int collnetEnable = kUndefined;
  int CTAPolicy = kUndefined;
  int shrinkShare = kUndefined;
  int nvlsCTAs = kUndefined;
  int nChannelsPerNetPeer = kUndefined;
  int nvlinkCentricSched = kUndefined;
  int graphUsageMode = kUndefined;
  int numRmaCtx = kUndefined;
  int maxP2pPeers = kUndefined;
  int graphStreamOrdering = kUndefined;
  int launchOrderImplicit = kUndefined;
  int numRmaSig = kUndefined;
  int rmaEagerInit = kUndefined;
  int hostCftMode = kUndefined;
  int nvlsHostMode = kUndefined;
};

struct ncclCollConfig_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  const void* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection;
  int CTAPolicy;
  std::uint64_t userProfilerTag;
  cudaEvent_t launchCompletionEvent;  // since 2.32
};

struct ncclSimInfo_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  float estimatedTime;
};

struct ncclEncryptionConfig_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int mode;
  const char* psk;
};

struct ncclCommProperties_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  int ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  int railedGinType;
  std::uint64_t commHash;
  int ginMinStride;
  int ginConnectionType;
  bool ginSupport[64];
  std::size_t devCommRuntimeVersionSize;
  bool cftSupport;
  bool cftMulticastSupport;
  bool cftCountedSupport;
};

struct ncclTeam_t {
  int nRanks, rank, stride;
};

}  // extern "C"

/// Begins the definition of NCCL's function `name`: p<name> is the function, and `name` a weak
/// alias of it, so that a profiler may define `name` and call p<name>.
#define NCCL_FUNCTION(Type, name, ...)                                         \
  extern "C" __attribute__((visibility("default"))) Type p##name(__VA_ARGS__); \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name)))    \
  Type name(__VA_ARGS__);                                                      \
  Type p##name(__VA_ARGS__)
