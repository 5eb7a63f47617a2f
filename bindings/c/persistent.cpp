// Implements persistent calls of the C ABI.
#include <tutti/persistent.h>

#include "bindings/c/calls.h"

using namespace tutti::c;
using C = tutti::Communicator;

tuttiResult_t tuttiPersistentRun(tuttiPersistent_t persistent) {
  return guarded([&] { checked(persistent, "persistent").persistent.run(); });
}

tuttiResult_t tuttiPersistentStart(tuttiPersistent_t persistent, tuttiWork_t* work) {
  return guarded([&] {
    result(work, "work") = nullptr;
    *work = handle(checked(persistent, "persistent").persistent.start());
  });
}

tuttiResult_t tuttiPersistentAddTo(tuttiPersistent_t persistent, tuttiGroup_t group) {
  return guarded(
      [&] { checked(persistent, "persistent").persistent.add_to(checked(group, "group").group); });
}

tuttiResult_t tuttiPersistentFree(tuttiPersistent_t persistent) {
  return guarded([&] {
    if (persistent != nullptr) delete &checked(persistent, "persistent");
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

tuttiResult_t tuttiGatherInit(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                              int root, tuttiComm_t comm, const tuttiOptions_t* options,
                              tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::gather_init, send, recv, count, dtype, root);
}

tuttiResult_t tuttiScatterInit(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                               int root, tuttiComm_t comm, const tuttiOptions_t* options,
                               tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::scatter_init, send, recv, count, dtype, root);
}

tuttiResult_t tuttiAllToAllInit(const void* send, void* recv, size_t count, tuttiDataType_t dtype,
                                tuttiComm_t comm, const tuttiOptions_t* options,
                                tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::all_to_all_init, send, recv, count, dtype);
}

tuttiResult_t tuttiBarrierInit(tuttiComm_t comm, const tuttiOptions_t* options,
                               tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::barrier_init);
}

tuttiResult_t tuttiAllGatherVInit(const void* send, void* recv, const size_t* counts,
                                  const size_t* displs, tuttiDataType_t dtype, tuttiComm_t comm,
                                  const tuttiOptions_t* options, tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::all_gatherv_init, send, recv, Entries{counts, comm},
              Entries{displs, comm}, dtype);
}

tuttiResult_t tuttiReduceScatterVInit(const void* send, void* recv, const size_t* counts,
                                      const size_t* displs, tuttiDataType_t dtype, tuttiOp_t op,
                                      tuttiComm_t comm, const tuttiOptions_t* options,
                                      tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::reduce_scatterv_init, send, recv,
              Entries{counts, comm}, Entries{displs, comm}, dtype, op);
}

tuttiResult_t tuttiGatherVInit(const void* send, size_t send_count, void* recv,
                               const size_t* counts, const size_t* displs, tuttiDataType_t dtype,
                               int root, tuttiComm_t comm, const tuttiOptions_t* options,
                               tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::gatherv_init, send, send_count, recv,
              Entries{counts, comm}, Entries{displs, comm}, dtype, root);
}

tuttiResult_t tuttiScatterVInit(const void* send, const size_t* counts, const size_t* displs,
                                void* recv, size_t recv_count, tuttiDataType_t dtype, int root,
                                tuttiComm_t comm, const tuttiOptions_t* options,
                                tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::scatterv_init, send, Entries{counts, comm},
              Entries{displs, comm}, recv, recv_count, dtype, root);
}

tuttiResult_t tuttiAllToAllVInit(const void* send, const size_t* send_counts,
                                 const size_t* send_displs, void* recv, const size_t* recv_counts,
                                 const size_t* recv_displs, tuttiDataType_t dtype, tuttiComm_t comm,
                                 const tuttiOptions_t* options, tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::all_to_allv_init, send, Entries{send_counts, comm},
              Entries{send_displs, comm}, recv, Entries{recv_counts, comm},
              Entries{recv_displs, comm}, dtype);
}

tuttiResult_t tuttiSendInit(const void* buffer, size_t count, tuttiDataType_t dtype, int peer,
                            int tag, tuttiComm_t comm, const tuttiOptions_t* options,
                            tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::send_init, buffer, count, dtype, peer, tag);
}

tuttiResult_t tuttiRecvInit(void* buffer, size_t count, tuttiDataType_t dtype, int peer, int tag,
                            tuttiComm_t comm, const tuttiOptions_t* options,
                            tuttiPersistent_t* persistent) {
  return init(comm, options, persistent, &C::recv_init, buffer, count, dtype, peer, tag);
}
