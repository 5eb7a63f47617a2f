/* The enumerations of the C ABI: results, element types, reductions and settings. tutti/tutti.h
   includes this header and says how the ABI grows. */
#pragma once

#ifdef __cplusplus
#define TUTTI_ENUM : int /* C++: int as in C, so that any value that a caller passes is defined */
#else
#define TUTTI_ENUM
#endif

/* Every function returns one of these: success, or a value that says what the caller can do. */
typedef enum tuttiResult_t TUTTI_ENUM {
  tuttiSuccess = 0,
  tuttiErrorUsage = 1,       /* the call is wrong: correct it; nothing has happened */
  tuttiErrorUnavailable = 2, /* this machine or this build cannot do it */
  tuttiErrorMismatch = 3,    /* ranks called different things, or are set up differently */
  tuttiErrorPeerLost = 4,    /* a peer's process has ended, or its connection broke */
  tuttiErrorTimeout = 5,     /* the deadline passed */
  tuttiErrorCorrupt = 6,     /* data arrived damaged */
  tuttiErrorInternal = 7     /* a bug of tutti: please report it */
} tuttiResult_t;

typedef enum tuttiDataType_t TUTTI_ENUM {
  tuttiInt8 = 0,
  tuttiUint8 = 1,
  tuttiInt16 = 2,
  tuttiUint16 = 3,
  tuttiInt32 = 4,
  tuttiUint32 = 5,
  tuttiInt64 = 6,
  tuttiUint64 = 7,
  tuttiFloat16 = 8,
  tuttiBfloat16 = 9,
  tuttiFloat32 = 10,
  tuttiFloat64 = 11,
  tuttiFloat8e4m3 = 12,
  tuttiFloat8e5m2 = 13,
  tuttiComplex64 = 14, /* two f32 */
  tuttiComplex128 = 15,
  tuttiBool = 16
} tuttiDataType_t;

typedef enum tuttiOp_t TUTTI_ENUM {
  tuttiSum = 0,
  tuttiProd = 1,
  tuttiMin = 2,
  tuttiMax = 3,
  tuttiAvg = 4,
  tuttiPremulSum = 5,
  tuttiBitAnd = 6,
  tuttiBitOr = 7,
  tuttiBitXor = 8,
  tuttiLogicalAnd = 9,
  tuttiLogicalOr = 10
} tuttiOp_t;

typedef enum tuttiCollective_t TUTTI_ENUM {
  tuttiCollectiveAllReduce = 0,
  tuttiCollectiveBroadcast = 1,
  tuttiCollectiveReduce = 2,
  tuttiCollectiveAllGather = 3,
  tuttiCollectiveReduceScatter = 4,
  tuttiCollectiveBarrier = 5, /* an all-reduce of nothing */
  tuttiCollectiveGather = 6,
  tuttiCollectiveScatter = 7,
  tuttiCollectiveAllToAll = 8
} tuttiCollective_t;

/* The format that holds partial sums and products of 16-bit and 8-bit floats between ranks. */
typedef enum tuttiAccumulate_t TUTTI_ENUM {
  tuttiAccumulateDefault = 0, /* a call: the communicator's; a configuration: the environment's */
  tuttiAccumulateStep = 1,    /* the element type: each step rounds */
  tuttiAccumulateF32 = 2, /* f32: the result is rounded once; messages are 2 or 4 times as long */
  tuttiAccumulateReproducible = 3 /* integers: the order changes no bit; see docs/numerics.md */
} tuttiAccumulate_t;

typedef enum tuttiLogLevel_t TUTTI_ENUM {
  tuttiLogDefault = 0, /* the environment's level */
  tuttiLogError = 1,
  tuttiLogWarn = 2,
  tuttiLogInfo = 3,
  tuttiLogDebug = 4
} tuttiLogLevel_t;
