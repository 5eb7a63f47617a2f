// Implements reductions of the program's own in the C ABI.
#include <tutti/reduction.h>

#include <memory>

#include "bindings/c/calls.h"
#include "compute/combine.h"

using namespace tutti::c;
using C = tutti::Communicator;

namespace {

void reduce(const void* in, void* inout, std::size_t count, void* context) {
  const auto& its = *static_cast<const tuttiReduction*>(context);
  const tuttiResult_t result = its.function(in, inout, count, its.context);
  if (result != tuttiSuccess)
    throw tutti::Error(tutti::ErrorKind::usage, "returned " +
                                                    std::to_string(static_cast<int>(result)) +
                                                    " (" + tuttiGetErrorString(result) + ")");
}

}  // namespace

tuttiReduction::tuttiReduction(const char* its_name, std::size_t element_bytes,
                               tuttiReduceFunction_t f, void* c)
    : name(its_name), function(f), context(c), reduction{name, element_bytes, reduce, this} {}

tuttiResult_t tuttiReductionCreate(tuttiReduction_t* reduction, const char* name,
                                   size_t element_bytes, tuttiReduceFunction_t function,
                                   void* context) {
  return guarded([&] {
    result(reduction, "reduction") = nullptr;
    auto made = std::make_unique<tuttiReduction>(&result(name, "name"), element_bytes,
                                                 result(function, "function"), context);
    tutti::combine_function(made->reduction);  // throws `usage`
    *reduction = made.release();
  });
}

tuttiResult_t tuttiReductionFree(tuttiReduction_t reduction) {
  return guarded([&] {
    if (reduction != nullptr) delete &checked(reduction, "reduction");
  });
}

// The type and the operation are ignored when the options carry a reduction, so these two values
// only fill the arguments.
constexpr tuttiDataType_t kAnyType = tuttiUint8;
constexpr tuttiOp_t kAnyOp = tuttiSum;

tuttiResult_t tuttiAllReduceWith(const void* send, void* recv, size_t count,
                                 tuttiReduction_t reduction, tuttiComm_t comm,
                                 const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, With{options, reduction}, work, &C::all_reduce, &C::all_reduce_async, send,
              recv, count, kAnyType, kAnyOp);
}

tuttiResult_t tuttiReduceWith(const void* send, void* recv, size_t count,
                              tuttiReduction_t reduction, int root, tuttiComm_t comm,
                              const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, With{options, reduction}, work, &C::reduce, &C::reduce_async, send, recv, count,
              kAnyType, kAnyOp, root);
}

tuttiResult_t tuttiReduceScatterWith(const void* send, void* recv, size_t count,
                                     tuttiReduction_t reduction, tuttiComm_t comm,
                                     const tuttiOptions_t* options, tuttiWork_t* work) {
  return call(comm, With{options, reduction}, work, &C::reduce_scatter, &C::reduce_scatter_async,
              send, recv, count, kAnyType, kAnyOp);
}

tuttiResult_t tuttiReduceScatterVWith(const void* send, void* recv, const size_t* counts,
                                      const size_t* displs, tuttiReduction_t reduction,
                                      tuttiComm_t comm, const tuttiOptions_t* options,
                                      tuttiWork_t* work) {
  return call(comm, With{options, reduction}, work, &C::reduce_scatterv, &C::reduce_scatterv_async,
              send, recv, Entries{counts, comm}, Entries{displs, comm}, kAnyType, kAnyOp);
}

tuttiResult_t tuttiAllReduceWithInit(const void* send, void* recv, size_t count,
                                     tuttiReduction_t reduction, tuttiComm_t comm,
                                     const tuttiOptions_t* options, tuttiPersistent_t* persistent) {
  return init(comm, With{options, reduction}, persistent, &C::all_reduce_init, send, recv, count,
              kAnyType, kAnyOp);
}

tuttiResult_t tuttiReduceWithInit(const void* send, void* recv, size_t count,
                                  tuttiReduction_t reduction, int root, tuttiComm_t comm,
                                  const tuttiOptions_t* options, tuttiPersistent_t* persistent) {
  return init(comm, With{options, reduction}, persistent, &C::reduce_init, send, recv, count,
              kAnyType, kAnyOp, root);
}

tuttiResult_t tuttiReduceScatterWithInit(const void* send, void* recv, size_t count,
                                         tuttiReduction_t reduction, tuttiComm_t comm,
                                         const tuttiOptions_t* options,
                                         tuttiPersistent_t* persistent) {
  return init(comm, With{options, reduction}, persistent, &C::reduce_scatter_init, send, recv,
              count, kAnyType, kAnyOp);
}

tuttiResult_t tuttiReduceScatterVWithInit(const void* send, void* recv, const size_t* counts,
                                          const size_t* displs, tuttiReduction_t reduction,
                                          tuttiComm_t comm, const tuttiOptions_t* options,
                                          tuttiPersistent_t* persistent) {
  return init(comm, With{options, reduction}, persistent, &C::reduce_scatterv_init, send, recv,
              Entries{counts, comm}, Entries{displs, comm}, kAnyType, kAnyOp);
}
