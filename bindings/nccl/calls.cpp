// Collectives, sends and receives, and groups.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <tutti/communicator.hpp>
#include <type_traits>

#include "bindings/nccl/algorithms.h"
#include "bindings/nccl/communicator.h"
#include "bindings/nccl/errors.h"
#include "bindings/nccl/group.h"

namespace tutti::nccl {
namespace {

using C = Communicator;

DataType type_of(ncclDataType_t type) {
  static constexpr std::array<DataType, ncclNumTypes> kTypes{
      DataType::int8,  DataType::uint8,  DataType::int32,  DataType::uint32,
      DataType::int64, DataType::uint64, DataType::f16,    DataType::f32,
      DataType::f64,   DataType::bf16,   DataType::f8e4m3, DataType::f8e5m2};
  require(type >= 0 && type < ncclNumTypes, "the data type is none");
  return kTypes[static_cast<std::size_t>(type)];
}

void require_buffer(const void* buffer, std::size_t count) {
  require(buffer != nullptr || count == 0, "a buffer is null");
}

void require_rank(const ncclComm& comm, int rank, const char* message) {
  require(rank >= 0 && rank < comm.size, message);
}

// A reduction, and the scalar of a premultiplied sum, to which the options of the call point.
struct Reduction {
  Reduction(ncclComm& comm, ncclRedOp_t op, ncclDataType_t type, cudaStream_t stream,
            CallOptions& options)
      : op_(find(comm, op, type, stream)) {
    if (op_ == Op::premul_sum) options.premultiplier = scalar_.data();
  }
  Reduction(const Reduction&) = delete;

  Op op() const noexcept { return op_; }

 private:
  Op find(ncclComm& comm, ncclRedOp_t op, ncclDataType_t type, cudaStream_t stream) {
    switch (op) {
      case ncclSum: return Op::sum;
      case ncclProd: return Op::prod;
      case ncclMax: return Op::max;
      case ncclMin: return Op::min;
      case ncclAvg: return Op::avg;
      default: break;
    }
    const std::lock_guard lock(comm.calls);
    const auto number = static_cast<std::size_t>(static_cast<int>(op) - ncclNumOps);
    require(op >= ncclNumOps && number < comm.premul_sums.size() && comm.premul_sums[number].exists,
            "the reduction is none of this communicator, or has been destroyed");
    const PremulSum& made = comm.premul_sums[number];
    require(made.type == type, "the reduction was created for another data type");
    scalar_ = made.scalar;
    if (made.on_gpu != nullptr) read(comm, made.on_gpu, size_of(type_of(type)), stream);
    return Op::premul_sum;
  }
  void read(const ncclComm& comm, const void* place, std::size_t bytes, cudaStream_t stream) {
    if (comm.gpu != nullptr && comm.gpu->owns(place))
      comm.gpu->read(scalar_.data(), place, bytes, comm.device, stream);
    else
      std::memcpy(scalar_.data(), place, bytes);
  }

  std::array<std::byte, 8> scalar_{};  // find() writes it.
  const Op op_;
};

// Calls on host buffers without a stream are done when they return.
bool is_for_host(const ncclComm& comm, const void* buffer, cudaStream_t stream) {
  return stream == nullptr && (comm.gpu == nullptr || !comm.gpu->owns(buffer));
}

template <typename Result, typename... Args>
using Member = Result (C::*)(Args..., const CallOptions&);

template <typename Blocked = void, typename... Args>
ncclResult_t call(ncclComm& comm, const void* buffer, cudaStream_t stream, CallOptions& options,
                  std::type_identity_t<Member<Blocked, Args...>> blocking,
                  std::type_identity_t<Member<Work, Args...>> asynchronous, Args... args) {
  const bool on_host = is_for_host(comm, buffer, stream);
  options.stream = stream;
  ThreadGroup& group = thread_group();
  const Calling calling(comm);
  Communicator& its = calling.communicator();
  if (group.is_open()) {
    options.group = &group.calls(comm, on_host);
    (its.*blocking)(args..., options);
    return ncclSuccess;
  }
  if (on_host && comm.settings.blocking) {
    (its.*blocking)(args..., options);
    return ncclSuccess;
  }
  Work work = (its.*asynchronous)(args..., options);
  if (on_host) comm.host_call = work;
  keep(comm, std::move(work));
  return on_host ? ncclInProgress : ncclSuccess;
}

// Reads what one call of a function that ends in Config is given.
CallOptions options_of(const ncclCollConfig_t* config, Collective what) {
  CallOptions options;
  if (config == nullptr) return options;
  require(config->magic == kApiMagic &&
              config->size >= offsetof(ncclCollConfig_t, launchCompletionEvent),
          "the ncclCollConfig_t was not set by NCCL_COLLCONFIG_INITIALIZER");
  if (config->size >= sizeof(ncclCollConfig_t) && config->launchCompletionEvent != nullptr)
    throw Failure(ncclInvalidUsage,
                  "ncclCollConfig_t::launchCompletionEvent is not supported: record an event on "
                  "the stream behind the call");
  if (config->algSelection == nullptr || *config->algSelection == '\0') return options;
  options.algorithm = algorithm_in(config->algSelection, what);
  if (options.algorithm.empty() && config->forceAlgSelection != 0)
    throw Failure(ncclInvalidUsage,
                  std::string("ncclCollConfig_t::algSelection is ") + config->algSelection +
                      ", and tutti has only RING and, for all-reduce, TREE: set "
                      "forceAlgSelection to 0, or leave the choice to the library");
  return options;
}

// What is the same for all collectives: the checks, and where the call goes.
struct Call {
  Call(ncclComm_t handle, ncclDataType_t nccl_type, cudaStream_t its_stream,
       const ncclCollConfig_t* config, Collective what)
      : comm(ready(handle)),
        type(type_of(nccl_type)),
        stream(its_stream),
        options(options_of(config, what)) {}

  ncclComm& comm;
  const DataType type;
  const cudaStream_t stream;
  CallOptions options;
};

using Config = const ncclCollConfig_t*;

ncclResult_t all_reduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, type, stream, config, Collective::all_reduce);
  require_buffer(send, count);
  require_buffer(recv, count);
  const Reduction reduction(its.comm, op, type, stream, its.options);
  return call(its.comm, send, stream, its.options, &C::all_reduce, &C::all_reduce_async, send, recv,
              count, its.type, reduction.op());
}

ncclResult_t reduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, type, stream, config, Collective::reduce);
  require_rank(its.comm, root, "the root is not a rank of the communicator");
  require_buffer(send, count);
  if (its.comm.rank == root) require_buffer(recv, count);
  const Reduction reduction(its.comm, op, type, stream, its.options);
  return call(its.comm, send, stream, its.options, &C::reduce, &C::reduce_async, send, recv, count,
              its.type, reduction.op(), root);
}

// The root's input goes to its output first, in the order of the stream, and from there to the
// others.
ncclResult_t broadcast(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                       int root, ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, type, stream, config, Collective::broadcast);
  require_rank(its.comm, root, "the root is not a rank of the communicator");
  require_buffer(recv, count);
  if (its.comm.rank == root && send != recv && count > 0) {
    require_buffer(send, count);
    const std::size_t bytes = count * size_of(its.type);
    const bool on_host = is_for_host(its.comm, recv, stream) && is_for_host(its.comm, send, stream);
    if (on_host || its.comm.gpu == nullptr)
      std::memmove(recv, send, bytes);
    else
      its.comm.gpu->copy(recv, send, bytes, its.comm.device, stream);
  }
  return call(its.comm, recv, stream, its.options, &C::broadcast, &C::broadcast_async, recv, count,
              its.type, root);
}

ncclResult_t all_gather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, type, stream, config, Collective::all_gather);
  require_buffer(send, count);
  require_buffer(recv, count);
  return call(its.comm, send, stream, its.options, &C::all_gather, &C::all_gather_async, send, recv,
              count, its.type);
}

ncclResult_t reduce_scatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, type, stream, config, Collective::reduce_scatter);
  require_buffer(send, count);
  require_buffer(recv, count);
  const Reduction reduction(its.comm, op, type, stream, its.options);
  return call(its.comm, send, stream, its.options, &C::reduce_scatter, &C::reduce_scatter_async,
              send, recv, count, its.type, reduction.op());
}

ncclResult_t all_to_all(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, type, stream, config, Collective::all_to_all);
  require_buffer(send, count);
  require_buffer(recv, count);
  return call(its.comm, send, stream, its.options, &C::all_to_all, &C::all_to_all_async, send, recv,
              count, its.type);
}

ncclResult_t gather(const void* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, type, stream, config, Collective::gather);
  require_rank(its.comm, root, "the root is not a rank of the communicator");
  require_buffer(send, count);
  if (its.comm.rank == root) require_buffer(recv, count);
  return call(its.comm, send, stream, its.options, &C::gather, &C::gather_async, send, recv, count,
              its.type, root);
}

ncclResult_t scatter(const void* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                     ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, type, stream, config, Collective::scatter);
  require_rank(its.comm, root, "the root is not a rank of the communicator");
  if (its.comm.rank == root) require_buffer(send, count);
  require_buffer(recv, count);
  return call(its.comm, recv, stream, its.options, &C::scatter, &C::scatter_async, send, recv,
              count, its.type, root);
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

// Defines a collective, and the function that takes a configuration besides. `parameters` and
// `arguments`, in parentheses, come before the communicator.
#define NCCL_LIST(...) __VA_ARGS__
#define NCCL_COLLECTIVE(name, name_config, function, parameters, arguments)                       \
  NCCL_FUNCTION(ncclResult_t, name, NCCL_LIST parameters, ncclComm_t comm, cudaStream_t stream) { \
    return in_group([&] { return function(NCCL_LIST arguments, comm, stream, nullptr); });        \
  }                                                                                               \
  NCCL_FUNCTION(ncclResult_t, name_config, NCCL_LIST parameters, ncclComm_t comm,                 \
                cudaStream_t stream, const ncclCollConfig_t* config) {                            \
    return in_group([&] { return function(NCCL_LIST arguments, comm, stream, config); });         \
  }

NCCL_COLLECTIVE(ncclAllReduce, ncclAllReduceConfig, all_reduce,
                (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op),
                (send, recv, count, type, op))
NCCL_COLLECTIVE(ncclBroadcast, ncclBroadcastConfig, broadcast,
                (const void* send, void* recv, size_t count, ncclDataType_t type, int root),
                (send, recv, count, type, root))
NCCL_COLLECTIVE(ncclReduce, ncclReduceConfig, reduce,
                (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                 int root),
                (send, recv, count, type, op, root))
NCCL_COLLECTIVE(ncclAllGather, ncclAllGatherConfig, all_gather,
                (const void* send, void* recv, size_t count, ncclDataType_t type),
                (send, recv, count, type))
NCCL_COLLECTIVE(ncclReduceScatter, ncclReduceScatterConfig, reduce_scatter,
                (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op),
                (send, recv, count, type, op))
NCCL_COLLECTIVE(ncclAlltoAll, ncclAlltoAllConfig, all_to_all,
                (const void* send, void* recv, size_t count, ncclDataType_t type),
                (send, recv, count, type))
NCCL_COLLECTIVE(ncclGather, ncclGatherConfig, gather,
                (const void* send, void* recv, size_t count, ncclDataType_t type, int root),
                (send, recv, count, type, root))
NCCL_COLLECTIVE(ncclScatter, ncclScatterConfig, scatter,
                (const void* send, void* recv, size_t count, ncclDataType_t type, int root),
                (send, recv, count, type, root))

NCCL_FUNCTION(ncclResult_t, ncclBcast, void* buffer, size_t count, ncclDataType_t type, int root,
              ncclComm_t comm, cudaStream_t stream) {
  return in_group(
      [&] { return broadcast(buffer, buffer, count, type, root, comm, stream, nullptr); });
}

NCCL_FUNCTION(ncclResult_t, ncclSend, const void* buffer, size_t count, ncclDataType_t type,
              int peer, ncclComm_t comm, cudaStream_t stream) {
  return in_group([&] {
    Call its(comm, type, stream, nullptr, {});
    require_rank(its.comm, peer, "the peer is not a rank of the communicator");
    require_buffer(buffer, count);
    return call(its.comm, buffer, stream, its.options, &C::send, &C::send_async, buffer, count,
                its.type, peer, 0);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclRecv, void* buffer, size_t count, ncclDataType_t type, int peer,
              ncclComm_t comm, cudaStream_t stream) {
  return in_group([&] {
    Call its(comm, type, stream, nullptr, {});
    require_rank(its.comm, peer, "the peer is not a rank of the communicator");
    require_buffer(buffer, count);
    return call<tutti::Received>(its.comm, buffer, stream, its.options, &C::recv, &C::recv_async,
                                 buffer, count, its.type, peer, 0);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclGroupStart) {
  thread_group().start();
  return ncclSuccess;
}

NCCL_FUNCTION(ncclResult_t, ncclGroupEnd) {
  return guarded([] { return thread_group().end(); });
}

NCCL_FUNCTION(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar,
              ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded([&] {
    ncclComm& its = ready(comm);
    require(op != nullptr && scalar != nullptr,
            "the place for the reduction, or the scalar, is null");
    const std::size_t bytes = size_of(type_of(type));
    require(residence == ncclScalarDevice || residence == ncclScalarHostImmediate,
            "the residence of the scalar is neither ncclScalarDevice nor ncclScalarHostImmediate");
    PremulSum made{true, type, {}, nullptr};
    if (residence == ncclScalarHostImmediate)
      std::memcpy(made.scalar.data(), scalar, bytes);
    else
      made.on_gpu = scalar;
    const Calling calling(its);
    auto& all = its.premul_sums;
    auto place =
        std::find_if(all.begin(), all.end(), [](const auto& each) { return !each.exists; });
    if (place == all.end()) place = all.emplace(place);
    *place = made;
    *op = static_cast<ncclRedOp_t>(ncclNumOps + (place - all.begin()));
  });
}

NCCL_FUNCTION(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
  return guarded([&] {
    ncclComm& its = whole(comm);
    const std::lock_guard lock(its.calls);
    const auto number = static_cast<std::size_t>(static_cast<int>(op) - ncclNumOps);
    require(op >= ncclNumOps && number < its.premul_sums.size() && its.premul_sums[number].exists,
            "the reduction is none that ncclRedOpCreatePreMulSum made for this communicator");
    its.premul_sums[number].exists = false;
  });
}
