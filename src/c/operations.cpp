// Each operation, in its three forms.
#include "c/guarded.h"
#include "c/handles.h"
#include "c/structs.h"
#include "c/work.h"

namespace tutti::c {
namespace {

// A member of Communicator that takes what the C function's arguments are in C++.
template <typename Result, typename... Args>
using Member = Result (Communicator::*)(decltype(cpp(std::declval<Args>()))..., const CallOptions&);

template <typename Blocked = void, typename... Args>
tuttiResult_t call(tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work,
                   std::type_identity_t<Member<Blocked, Args...>> blocking,
                   std::type_identity_t<Member<Work, Args...>> asynchronous,
                   Args... args) noexcept {
  return guarded([&] {
    if (work != nullptr) *work = nullptr;
    Communicator& communicator = checked(comm, "comm").communicator;
    if (work == nullptr)
      (communicator.*blocking)(cpp(args)..., read_options(options));
    else
      *work = handle((communicator.*asynchronous)(cpp(args)..., read_options(options)));
  });
}

template <typename... Args>
tuttiResult_t init(tuttiComm_t comm, const tuttiOptions_t* options, tuttiPersistent_t* persistent,
                   std::type_identity_t<Member<Persistent, Args...>> member,
                   Args... args) noexcept {
  return guarded([&] {
    result(persistent, "persistent") = nullptr;
    tuttiComm& its = checked(comm, "comm");
    *persistent =
        new tuttiPersistent(its, (its.communicator.*member)(cpp(args)..., read_options(options)));
  });
}

}  // namespace
}  // namespace tutti::c

using namespace tutti::c;
using C = tutti::Communicator;

tuttiResult_t tuttiAllReduce(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                             tuttiOp_t op, tuttiComm_t comm, const tuttiOptions_t* options,
                             tuttiWork_t* work) {
  return call(comm, options, work, &C::all_reduce, &C::all_reduce_async, send, recv, count, dtype,
              op);
}

tuttiResult_t tuttiReduce(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                          tuttiOp_t op, int root, tuttiComm_t comm, const tuttiOptions_t* options,
                          tuttiWork_t* work) {
  return call(comm, options, work, &C::reduce, &C::reduce_async, send, recv, count, dtype, op,
              root);
}

tuttiResult_t tuttiBroadcast(void* buffer, size_t count, tuttiDataType_t dtype, int root,
                             tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::broadcast, &C::broadcast_async, buffer, count, dtype, root);
}

tuttiResult_t tuttiAllGather(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                             tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::all_gather, &C::all_gather_async, send, recv, count, dtype);
}

tuttiResult_t tuttiReduceScatter(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                                 tuttiOp_t op, tuttiComm_t comm, const tuttiOptions_t* options,
                                 tuttiWork_t* work) {
  return call(comm, options, work, &C::reduce_scatter, &C::reduce_scatter_async, send, recv, count,
              dtype, op);
}

tuttiResult_t tuttiGather(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                          int root, tuttiComm_t comm, const tuttiOptions_t* options,
                          tuttiWork_t* work) {
  return call(comm, options, work, &C::gather, &C::gather_async, send, recv, count, dtype, root);
}

tuttiResult_t tuttiScatter(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                           int root, tuttiComm_t comm, const tuttiOptions_t* options,
                           tuttiWork_t* work) {
  return call(comm, options, work, &C::scatter, &C::scatter_async, send, recv, count, dtype, root);
}

tuttiResult_t tuttiAllToAll(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                            tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::all_to_all, &C::all_to_all_async, send, recv, count, dtype);
}

tuttiResult_t tuttiAllGatherV(const void* send, void* recv, const size_t* counts,
                              const size_t* displs, tuttiDataType_t dtype, tuttiComm_t comm,
                              const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::all_gatherv, &C::all_gatherv_async, send, recv,
              PerRank{counts, comm}, PerRank{displs, comm}, dtype);
}

tuttiResult_t tuttiReduceScatterV(const void* send, void* recv, const size_t* counts,
                                  const size_t* displs, tuttiDataType_t dtype, tuttiOp_t op,
                                  tuttiComm_t comm, const tuttiOptions_t* options,
                                  tuttiWork_t* work) {
  return call(comm, options, work, &C::reduce_scatterv, &C::reduce_scatterv_async, send, recv,
              PerRank{counts, comm}, PerRank{displs, comm}, dtype, op);
}

tuttiResult_t tuttiGatherV(const void* send, size_t send_count, void* recv, const size_t* counts,
                           const size_t* displs, tuttiDataType_t dtype, int root, tuttiComm_t comm,
                           const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::gatherv, &C::gatherv_async, send, send_count, recv,
              PerRank{counts, comm}, PerRank{displs, comm}, dtype, root);
}

tuttiResult_t tuttiScatterV(const void* send, const size_t* counts, const size_t* displs,
                            void* recv, size_t recv_count, tuttiDataType_t dtype, int root,
                            tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::scatterv, &C::scatterv_async, send, PerRank{counts, comm},
              PerRank{displs, comm}, recv, recv_count, dtype, root);
}

tuttiResult_t tuttiAllToAllV(const void* send, const size_t* send_counts, const size_t* send_displs,
                             void* recv, const size_t* recv_counts, const size_t* recv_displs,
                             tuttiDataType_t dtype, tuttiComm_t comm, const tuttiOptions_t* options,
                             tuttiWork_t* work) {
  return call(comm, options, work, &C::all_to_allv, &C::all_to_allv_async, send,
              PerRank{send_counts, comm}, PerRank{send_displs, comm}, recv,
              PerRank{recv_counts, comm}, PerRank{recv_displs, comm}, dtype);
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::barrier, &C::barrier_async);
}

tuttiResult_t tuttiSend(const void* buffer, size_t count, tuttiDataType_t dtype, int peer, int tag,
                        tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::send, &C::send_async, buffer, count, dtype, peer, tag);
}

tuttiResult_t tuttiRecv(void* buffer, size_t count, tuttiDataType_t dtype, int peer, int tag,
                        tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work) {
  return call<tutti::Received>(comm, options, work, &C::recv, &C::recv_async, buffer, count, dtype,
                               peer, tag);
}

tuttiResult_t tuttiGroupCreate(tuttiGroup_t* group) {
  return guarded([&] {
    result(group, "group") = nullptr;
    *group = new tuttiGroup;
  });
}

tuttiResult_t tuttiGroupEnd(tuttiGroup_t group, tuttiWork_t* work) {
  return guarded([&] {
    if (work != nullptr) *work = nullptr;
    tutti::Group& its = checked(group, "group").group;
    if (work == nullptr)
      its.end();
    else
      *work = handle(its.end_async());
  });
}

tuttiResult_t tuttiGroupFree(tuttiGroup_t group) {
  return guarded([&] {
    if (group != nullptr) delete &checked(group, "group");
  });
}

tuttiResult_t tuttiAllReduceInit(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                                 tuttiOp_t op, tuttiComm_t comm, const tuttiOptions_t* options,
                                 tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::all_reduce_init, send, recv, count, dtype, op);
}

tuttiResult_t tuttiReduceInit(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                              tuttiOp_t op, int root, tuttiComm_t comm,
                              const tuttiOptions_t* options, tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::reduce_init, send, recv, count, dtype, op, root);
}

tuttiResult_t tuttiBroadcastInit(void* buffer, size_t count, tuttiDataType_t dtype, int root,
                                 tuttiComm_t comm, const tuttiOptions_t* options,
                                 tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::broadcast_init, buffer, count, dtype, root);
}

tuttiResult_t tuttiAllGatherInit(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                                 tuttiComm_t comm, const tuttiOptions_t* options,
                                 tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::all_gather_init, send, recv, count, dtype);
}

tuttiResult_t tuttiReduceScatterInit(const void* send, void* recv, size_t count,
                                     tuttiDataType_t dtype, tuttiOp_t op, tuttiComm_t comm,
                                     const tuttiOptions_t* options, tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::reduce_scatter_init, send, recv, count, dtype, op);
}

tuttiResult_t tuttiBarrierInit(tuttiComm_t comm, const tuttiOptions_t* options,
                               tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::barrier_init);
}
