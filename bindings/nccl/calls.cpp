// Implements collectives, sends and receives, and groups.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <type_traits>

#include "bindings/nccl/algorithms.h"
#include "bindings/nccl/communicator.h"
#include "bindings/nccl/errors.h"
#include "bindings/nccl/group.h"
#include "bindings/nccl/reductions.h"

namespace tutti::nccl {
namespace {

using C = Communicator;

void require_buffer(const void* buffer, std::size_t count) {
  require(buffer != nullptr || count == 0, "a buffer is null");
}

void require_rank(const ncclComm& comm, int rank, const char* message) {
  require(rank >= 0 && rank < comm.size, message);
}

// Calls on host buffers without a stream are done when they return. For memory that the driver
// knows, the null stream is the default stream.
bool is_for_host(const ncclComm& comm, const void* buffer, cudaStream_t stream) {
  return stream == nullptr && (comm.gpu == nullptr || !comm.gpu->knows(buffer));
}

// The library takes a null stream for none unless a buffer is memory of a GPU, and pinned memory of
// the host is not.
void* named(const ncclComm& comm, const void* buffer, cudaStream_t stream, bool on_host) {
  constexpr std::uintptr_t kLegacyStream = 1;  // CU_STREAM_LEGACY
  if (stream != nullptr || on_host || comm.gpu == nullptr || comm.gpu->owns(buffer)) return stream;
  return reinterpret_cast<void*>(kLegacyStream);
}

template <typename Result, typename... Args>
using Member = Result (C::*)(Args..., const CallOptions&);

// A function that is called before a call, in its order, such as a copy.
using Before = std::function<void()>;

template <typename Blocked = void, typename... Args>
ncclResult_t call(const std::shared_ptr<ncclComm>& owner, const void* buffer, cudaStream_t stream,
                  CallOptions& options, const Before& before,
                  std::type_identity_t<Member<Blocked, Args...>> blocking,
                  std::type_identity_t<Member<Work, Args...>> asynchronous, Args... args) {
  ncclComm& comm = *owner;
  const bool on_host = is_for_host(comm, buffer, stream);
  options.stream = named(comm, buffer, stream, on_host);
  const WithContext context(on_host ? nullptr : comm.gpu, comm.device);
  ThreadGroup& group = thread_group();
  const Calling calling(comm);
  Communicator& its = calling.communicator();
  if (group.is_open()) {
    options.group = &group.calls(owner, on_host);
    (its.*blocking)(args..., options);
    if (before) group.add_copy(before);
    return ncclSuccess;
  }
  if (before) before();
  if (on_host && comm.settings.blocking) {
    (its.*blocking)(args..., options);
    return ncclSuccess;
  }
  keep(comm, (its.*asynchronous)(args..., options), on_host);
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

// Checks the arguments that all collectives have, and holds what tells where the call goes.
struct Call {
  Call(ncclComm_t handle, std::size_t count, ncclDataType_t nccl_type, cudaStream_t its_stream,
       const ncclCollConfig_t* config, Collective what)
      : owner(ready(handle)),
        comm(*owner),
        type(type_of(nccl_type)),
        stream(its_stream),
        options(options_of(config, what)) {
    constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
    require(count < kMost / size_of(type) / static_cast<std::size_t>(comm.size),
            "the count is more than memory can hold");
  }

  const std::shared_ptr<ncclComm> owner;
  ncclComm& comm;
  const DataType type;
  const cudaStream_t stream;
  CallOptions options;
};

using Config = const ncclCollConfig_t*;

ncclResult_t all_reduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, count, type, stream, config, Collective::all_reduce);
  require_buffer(send, count);
  require_buffer(recv, count);
  const Reduction reduction(its.comm, op, type, stream, its.options);
  return call(its.owner, send, stream, its.options, {}, &C::all_reduce, &C::all_reduce_async, send,
              recv, count, its.type, reduction.op());
}

ncclResult_t reduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, count, type, stream, config, Collective::reduce);
  require_rank(its.comm, root, "the root is not a rank of the communicator");
  require_buffer(send, count);
  if (its.comm.rank == root) require_buffer(recv, count);
  const Reduction reduction(its.comm, op, type, stream, its.options);
  return call(its.owner, send, stream, its.options, {}, &C::reduce, &C::reduce_async, send, recv,
              count, its.type, reduction.op(), root);
}

// The root's input goes to its output first, in the order of the stream, and from there to the
// others.
ncclResult_t broadcast(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                       int root, ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, count, type, stream, config, Collective::broadcast);
  require_rank(its.comm, root, "the root is not a rank of the communicator");
  require_buffer(recv, count);
  const std::size_t bytes = count * size_of(its.type);
  Before before;
  if (its.comm.rank == root && send != recv && count > 0) {
    require_buffer(send, count);
    const auto from = reinterpret_cast<std::uintptr_t>(send);
    const auto to = reinterpret_cast<std::uintptr_t>(recv);
    if (from < to + bytes && to < from + bytes)
      throw Failure(ncclInvalidUsage, "the root's buffers overlap and are not the same");
    before = [owner = its.owner, send, recv, bytes, stream] {
      const bool on_host = is_for_host(*owner, recv, stream) && is_for_host(*owner, send, stream);
      if (on_host || owner->gpu == nullptr)
        std::memmove(recv, send, bytes);
      else
        owner->gpu->copy(recv, send, bytes, owner->device, stream);
    };
  }
  return call(its.owner, recv, stream, its.options, before, &C::broadcast, &C::broadcast_async,
              recv, count, its.type, root);
}

ncclResult_t all_gather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, count, type, stream, config, Collective::all_gather);
  require_buffer(send, count);
  require_buffer(recv, count);
  return call(its.owner, send, stream, its.options, {}, &C::all_gather, &C::all_gather_async, send,
              recv, count, its.type);
}

ncclResult_t reduce_scatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, count, type, stream, config, Collective::reduce_scatter);
  require_buffer(send, count);
  require_buffer(recv, count);
  const Reduction reduction(its.comm, op, type, stream, its.options);
  return call(its.owner, send, stream, its.options, {}, &C::reduce_scatter,
              &C::reduce_scatter_async, send, recv, count, its.type, reduction.op());
}

ncclResult_t all_to_all(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, count, type, stream, config, Collective::all_to_all);
  require_buffer(send, count);
  require_buffer(recv, count);
  return call(its.owner, send, stream, its.options, {}, &C::all_to_all, &C::all_to_all_async, send,
              recv, count, its.type);
}

ncclResult_t gather(const void* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, count, type, stream, config, Collective::gather);
  require_rank(its.comm, root, "the root is not a rank of the communicator");
  require_buffer(send, count);
  if (its.comm.rank == root) require_buffer(recv, count);
  return call(its.owner, send, stream, its.options, {}, &C::gather, &C::gather_async, send, recv,
              count, its.type, root);
}

ncclResult_t scatter(const void* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                     ncclComm_t comm, cudaStream_t stream, Config config) {
  Call its(comm, count, type, stream, config, Collective::scatter);
  require_rank(its.comm, root, "the root is not a rank of the communicator");
  if (its.comm.rank == root) require_buffer(send, count);
  require_buffer(recv, count);
  return call(its.owner, recv, stream, its.options, {}, &C::scatter, &C::scatter_async, send, recv,
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
    Call its(comm, count, type, stream, nullptr, {});
    require_rank(its.comm, peer, "the peer is not a rank of the communicator");
    require_buffer(buffer, count);
    return call(its.owner, buffer, stream, its.options, {}, &C::send, &C::send_async, buffer, count,
                its.type, peer, 0);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclRecv, void* buffer, size_t count, ncclDataType_t type, int peer,
              ncclComm_t comm, cudaStream_t stream) {
  return in_group([&] {
    Call its(comm, count, type, stream, nullptr, {});
    require_rank(its.comm, peer, "the peer is not a rank of the communicator");
    require_buffer(buffer, count);
    return call<tutti::Received>(its.owner, buffer, stream, its.options, {}, &C::recv,
                                 &C::recv_async, buffer, count, its.type, peer, 0);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclGroupStart) {
  thread_group().start();
  return ncclSuccess;
}

NCCL_FUNCTION(ncclResult_t, ncclGroupEnd) {
  return guarded([] { return thread_group().end(); });
}
