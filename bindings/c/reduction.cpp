// Implements reductions of the program's own in the C ABI.
#include <tutti/reduction.h>

#include <memory>

#include "bindings/c/calls.h"
#include "compute/combine.h"

using namespace tutti::c;

namespace {

void reduce(const void* in, void* inout, std::size_t count, void* context) {
  const auto& its = *static_cast<const tuttiReduction*>(context);
  const tuttiResult_t result = its.function(in, inout, count, its.context);
  if (result != tuttiSuccess)
    throw tutti::Error(tutti::ErrorKind::usage, "returned " + text_of(result));
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

TUTTI_OPERATION_WITH(AllReduce, all_reduce,
                     (const void* send, void* recv, size_t count, tuttiReduction_t reduction), send,
                     recv, count, tuttiUint8, tuttiSum)
TUTTI_OPERATION_WITH(Reduce, reduce,
                     (const void* send, void* recv, size_t count, tuttiReduction_t reduction,
                      int root),
                     send, recv, count, tuttiUint8, tuttiSum, root)
TUTTI_OPERATION_WITH(ReduceScatter, reduce_scatter,
                     (const void* send, void* recv, size_t count, tuttiReduction_t reduction), send,
                     recv, count, tuttiUint8, tuttiSum)
TUTTI_OPERATION_WITH(ReduceScatterV, reduce_scatterv,
                     (const void* send, void* recv, const size_t* counts, const size_t* displs,
                      tuttiReduction_t reduction),
                     send, recv, Entries{counts, comm}, Entries{displs, comm}, tuttiUint8, tuttiSum)
