// Implements each operation of the C ABI (blocking, asynchronous and persistent), and groups.
#include <tutti/persistent.h>

#include "bindings/c/calls.h"

using namespace tutti::c;
using C = tutti::Communicator;

TUTTI_OPERATION(AllReduce, all_reduce,
                (const void* send, void* recv, size_t count, tuttiDataType_t dtype, tuttiOp_t op),
                send, recv, count, dtype, op)
TUTTI_OPERATION(Reduce, reduce,
                (const void* send, void* recv, size_t count, tuttiDataType_t dtype, tuttiOp_t op,
                 int root),
                send, recv, count, dtype, op, root)
TUTTI_OPERATION(Broadcast, broadcast, (void* buffer, size_t count, tuttiDataType_t dtype, int root),
                buffer, count, dtype, root)
TUTTI_OPERATION(AllGather, all_gather,
                (const void* send, void* recv, size_t count, tuttiDataType_t dtype), send, recv,
                count, dtype)
TUTTI_OPERATION(ReduceScatter, reduce_scatter,
                (const void* send, void* recv, size_t count, tuttiDataType_t dtype, tuttiOp_t op),
                send, recv, count, dtype, op)
TUTTI_OPERATION(Gather, gather,
                (const void* send, void* recv, size_t count, tuttiDataType_t dtype, int root), send,
                recv, count, dtype, root)
TUTTI_OPERATION(Scatter, scatter,
                (const void* send, void* recv, size_t count, tuttiDataType_t dtype, int root), send,
                recv, count, dtype, root)
TUTTI_OPERATION(AllToAll, all_to_all,
                (const void* send, void* recv, size_t count, tuttiDataType_t dtype), send, recv,
                count, dtype)
TUTTI_OPERATION(AllGatherV, all_gatherv,
                (const void* send, void* recv, const size_t* counts, const size_t* displs,
                 tuttiDataType_t dtype),
                send, recv, Entries{counts, comm}, Entries{displs, comm}, dtype)
TUTTI_OPERATION(ReduceScatterV, reduce_scatterv,
                (const void* send, void* recv, const size_t* counts, const size_t* displs,
                 tuttiDataType_t dtype, tuttiOp_t op),
                send, recv, Entries{counts, comm}, Entries{displs, comm}, dtype, op)
TUTTI_OPERATION(GatherV, gatherv,
                (const void* send, size_t send_count, void* recv, const size_t* counts,
                 const size_t* displs, tuttiDataType_t dtype, int root),
                send, send_count, recv, Entries{counts, comm}, Entries{displs, comm}, dtype, root)
TUTTI_OPERATION(ScatterV, scatterv,
                (const void* send, const size_t* counts, const size_t* displs, void* recv,
                 size_t recv_count, tuttiDataType_t dtype, int root),
                send, Entries{counts, comm}, Entries{displs, comm}, recv, recv_count, dtype, root)
TUTTI_OPERATION(AllToAllV, all_to_allv,
                (const void* send, const size_t* send_counts, const size_t* send_displs, void* recv,
                 const size_t* recv_counts, const size_t* recv_displs, tuttiDataType_t dtype),
                send, Entries{send_counts, comm}, Entries{send_displs, comm}, recv,
                Entries{recv_counts, comm}, Entries{recv_displs, comm}, dtype)
TUTTI_OPERATION(Barrier, barrier, ())
TUTTI_OPERATION(Send, send,
                (const void* buffer, size_t count, tuttiDataType_t dtype, int peer, int tag),
                buffer, count, dtype, peer, tag)

// A blocking receive returns what it has received, which the options give to C.
tuttiResult_t tuttiRecv(void* buffer, size_t count, tuttiDataType_t dtype, int peer, int tag,
                        tuttiComm_t comm, const tuttiOptions_t* options, tuttiWork_t* work) {
  return call<tutti::Received>(comm, options, work, &C::recv, &C::recv_async, buffer, count, dtype,
                               peer, tag);
}

tuttiResult_t tuttiRecvInit(void* buffer, size_t count, tuttiDataType_t dtype, int peer, int tag,
                            tuttiComm_t comm, const tuttiOptions_t* options,
                            tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::recv_init, buffer, count, dtype, peer, tag);
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
