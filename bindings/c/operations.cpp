// Implements each operation of the C ABI, blocking and asynchronous, and groups.
#include "bindings/c/calls.h"

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
              Entries{counts, comm}, Entries{displs, comm}, dtype);
}

tuttiResult_t tuttiReduceScatterV(const void* send, void* recv, const size_t* counts,
                                  const size_t* displs, tuttiDataType_t dtype, tuttiOp_t op,
                                  tuttiComm_t comm, const tuttiOptions_t* options,
                                  tuttiWork_t* work) {
  return call(comm, options, work, &C::reduce_scatterv, &C::reduce_scatterv_async, send, recv,
              Entries{counts, comm}, Entries{displs, comm}, dtype, op);
}

tuttiResult_t tuttiGatherV(const void* send, size_t send_count, void* recv, const size_t* counts,
                           const size_t* displs, tuttiDataType_t dtype, int root, tuttiComm_t comm,
                           const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::gatherv, &C::gatherv_async, send, send_count, recv,
              Entries{counts, comm}, Entries{displs, comm}, dtype, root);
}

tuttiResult_t tuttiScatterV(const void* send, const size_t* counts, const size_t* displs,
                            void* recv, size_t recv_count, tuttiDataType_t dtype, int root,
                            tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, options, work, &C::scatterv, &C::scatterv_async, send, Entries{counts, comm},
              Entries{displs, comm}, recv, recv_count, dtype, root);
}

tuttiResult_t tuttiAllToAllV(const void* send, const size_t* send_counts, const size_t* send_displs,
                             void* recv, const size_t* recv_counts, const size_t* recv_displs,
                             tuttiDataType_t dtype, tuttiComm_t comm, const tuttiOptions_t* options,
                             tuttiWork_t* work) {
  return call(comm, options, work, &C::all_to_allv, &C::all_to_allv_async, send,
              Entries{send_counts, comm}, Entries{send_displs, comm}, recv,
              Entries{recv_counts, comm}, Entries{recv_displs, comm}, dtype);
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
