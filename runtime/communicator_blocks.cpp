// The functions of the public class Communicator that move blocks: gathers, scatters and exchanges,
// of blocks with equal or different lengths.
#include <tutti/communicator.hpp>

#include <fmt/format.h>

#include "runtime/communicator_impl.h"
#include "runtime/engine/variable_blocks.h"

namespace tutti {
namespace {

Call all_gather_call(const void* input, void* output, std::size_t count, DataType type,
                     const CallOptions& options) {
  return call_of(Collective::all_gather, input, output, count, type, Op::sum, 0, options);
}
Call reduce_scatter_call(const void* input, void* output, std::size_t count, DataType type, Op op,
                         const CallOptions& options) {
  return call_of(Collective::reduce_scatter, input, output, count, type, op, 0, options);
}
Call gather_call(const void* input, void* output, std::size_t count, DataType type, int root,
                 const CallOptions& options) {
  return call_of(Collective::gather, input, output, count, type, Op::sum, root, options);
}
Call scatter_call(const void* input, void* output, std::size_t count, DataType type, int root,
                  const CallOptions& options) {
  return call_of(Collective::scatter, input, output, count, type, Op::sum, root, options);
}
Call all_to_all_call(const void* input, void* output, std::size_t count, DataType type,
                     const CallOptions& options) {
  return call_of(Collective::all_to_all, input, output, count, type, Op::sum, 0, options);
}

/// A call whose blocks have different lengths. CommunicatorImpl reads the lengths before the call
/// returns.
struct VariableCall {
  VariableCall(const Call& uniform, const VariableBlocks& lengths)
      : blocks(lengths), call(uniform) {
    call.kind.variable = true;
    call.kind.count = longest_known(call.kind.what, blocks);
    call.variable = &blocks;
  }
  VariableCall(const VariableCall&) = delete;
  VariableCall& operator=(const VariableCall&) = delete;

  const VariableBlocks blocks;
  Call call;
};

VariableCall all_gatherv_call(const void* input, void* output, PerRank counts,
                              PerRank displacements, DataType type, const CallOptions& options) {
  return {call_of(Collective::all_gather, input, output, 0, type, Op::sum, 0, options),
          {{}, {counts, displacements}, 0}};
}
VariableCall reduce_scatterv_call(const void* input, void* output, PerRank counts,
                                  PerRank displacements, DataType type, Op op,
                                  const CallOptions& options) {
  return {call_of(Collective::reduce_scatter, input, output, 0, type, op, 0, options),
          {{counts, displacements}, {}, 0}};
}
VariableCall gatherv_call(const void* input, std::size_t count, void* output, PerRank counts,
                          PerRank displacements, DataType type, int root,
                          const CallOptions& options) {
  return {call_of(Collective::gather, input, output, 0, type, Op::sum, root, options),
          {{}, {counts, displacements}, count}};
}
VariableCall scatterv_call(const void* input, PerRank counts, PerRank displacements, void* output,
                           std::size_t count, DataType type, int root, const CallOptions& options) {
  return {call_of(Collective::scatter, input, output, 0, type, Op::sum, root, options),
          {{counts, displacements}, {}, count}};
}
VariableCall all_to_allv_call(const void* input, PerRank input_counts, PerRank input_displacements,
                              void* output, PerRank output_counts, PerRank output_displacements,
                              DataType type, const CallOptions& options) {
  return {call_of(Collective::all_to_all, input, output, 0, type, Op::sum, 0, options),
          {{input_counts, input_displacements}, {output_counts, output_displacements}, 0}};
}

}  // namespace

std::size_t Communicator::block(std::size_t elements, std::size_t all) const {
  const auto ranks = static_cast<std::size_t>(size());
  if (all % ranks == 0 && all / ranks == elements) return elements;
  throw Error(ErrorKind::usage, fmt::format("a buffer for all {} ranks has {} elements, and one "
                                            "for a rank {}; it must be {} times as long",
                                            ranks, all, elements, ranks));
}

void Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  impl_->call(all_gather_call(input, output, count, type, options));
}
Work Communicator::all_gather_async(const void* input, void* output, std::size_t count,
                                    DataType type, const CallOptions& options) {
  return impl_->call_async(all_gather_call(input, output, count, type, options));
}
Persistent Communicator::all_gather_init(const void* input, void* output, std::size_t count,
                                         DataType type, const CallOptions& options) {
  return impl_->make_persistent(all_gather_call(input, output, count, type, options));
}
void Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                  Op op, const CallOptions& options) {
  impl_->call(reduce_scatter_call(input, output, count, type, op, options));
}
Work Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count,
                                        DataType type, Op op, const CallOptions& options) {
  return impl_->call_async(reduce_scatter_call(input, output, count, type, op, options));
}
Persistent Communicator::reduce_scatter_init(const void* input, void* output, std::size_t count,
                                             DataType type, Op op, const CallOptions& options) {
  return impl_->make_persistent(reduce_scatter_call(input, output, count, type, op, options));
}
void Communicator::gather(const void* input, void* output, std::size_t count, DataType type,
                          int root, const CallOptions& options) {
  impl_->call(gather_call(input, output, count, type, root, options));
}
Work Communicator::gather_async(const void* input, void* output, std::size_t count, DataType type,
                                int root, const CallOptions& options) {
  return impl_->call_async(gather_call(input, output, count, type, root, options));
}
Persistent Communicator::gather_init(const void* input, void* output, std::size_t count,
                                     DataType type, int root, const CallOptions& options) {
  return impl_->make_persistent(gather_call(input, output, count, type, root, options));
}
void Communicator::scatter(const void* input, void* output, std::size_t count, DataType type,
                           int root, const CallOptions& options) {
  impl_->call(scatter_call(input, output, count, type, root, options));
}
Work Communicator::scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                 int root, const CallOptions& options) {
  return impl_->call_async(scatter_call(input, output, count, type, root, options));
}
Persistent Communicator::scatter_init(const void* input, void* output, std::size_t count,
                                      DataType type, int root, const CallOptions& options) {
  return impl_->make_persistent(scatter_call(input, output, count, type, root, options));
}
void Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  impl_->call(all_to_all_call(input, output, count, type, options));
}
Work Communicator::all_to_all_async(const void* input, void* output, std::size_t count,
                                    DataType type, const CallOptions& options) {
  return impl_->call_async(all_to_all_call(input, output, count, type, options));
}
Persistent Communicator::all_to_all_init(const void* input, void* output, std::size_t count,
                                         DataType type, const CallOptions& options) {
  return impl_->make_persistent(all_to_all_call(input, output, count, type, options));
}
void Communicator::all_gatherv(const void* input, void* output, PerRank counts,
                               PerRank displacements, DataType type, const CallOptions& options) {
  impl_->call(all_gatherv_call(input, output, counts, displacements, type, options).call);
}
Work Communicator::all_gatherv_async(const void* input, void* output, PerRank counts,
                                     PerRank displacements, DataType type,
                                     const CallOptions& options) {
  return impl_->call_async(
      all_gatherv_call(input, output, counts, displacements, type, options).call);
}
Persistent Communicator::all_gatherv_init(const void* input, void* output, PerRank counts,
                                          PerRank displacements, DataType type,
                                          const CallOptions& options) {
  return impl_->make_persistent(
      all_gatherv_call(input, output, counts, displacements, type, options).call);
}
void Communicator::reduce_scatterv(const void* input, void* output, PerRank counts,
                                   PerRank displacements, DataType type, Op op,
                                   const CallOptions& options) {
  impl_->call(reduce_scatterv_call(input, output, counts, displacements, type, op, options).call);
}
Work Communicator::reduce_scatterv_async(const void* input, void* output, PerRank counts,
                                         PerRank displacements, DataType type, Op op,
                                         const CallOptions& options) {
  return impl_->call_async(
      reduce_scatterv_call(input, output, counts, displacements, type, op, options).call);
}
Persistent Communicator::reduce_scatterv_init(const void* input, void* output, PerRank counts,
                                              PerRank displacements, DataType type, Op op,
                                              const CallOptions& options) {
  return impl_->make_persistent(
      reduce_scatterv_call(input, output, counts, displacements, type, op, options).call);
}
void Communicator::gatherv(const void* input, std::size_t count, void* output, PerRank counts,
                           PerRank displacements, DataType type, int root,
                           const CallOptions& options) {
  impl_->call(gatherv_call(input, count, output, counts, displacements, type, root, options).call);
}
Work Communicator::gatherv_async(const void* input, std::size_t count, void* output, PerRank counts,
                                 PerRank displacements, DataType type, int root,
                                 const CallOptions& options) {
  return impl_->call_async(
      gatherv_call(input, count, output, counts, displacements, type, root, options).call);
}
Persistent Communicator::gatherv_init(const void* input, std::size_t count, void* output,
                                      PerRank counts, PerRank displacements, DataType type,
                                      int root, const CallOptions& options) {
  return impl_->make_persistent(
      gatherv_call(input, count, output, counts, displacements, type, root, options).call);
}
void Communicator::scatterv(const void* input, PerRank counts, PerRank displacements, void* output,
                            std::size_t count, DataType type, int root,
                            const CallOptions& options) {
  impl_->call(scatterv_call(input, counts, displacements, output, count, type, root, options).call);
}
Work Communicator::scatterv_async(const void* input, PerRank counts, PerRank displacements,
                                  void* output, std::size_t count, DataType type, int root,
                                  const CallOptions& options) {
  return impl_->call_async(
      scatterv_call(input, counts, displacements, output, count, type, root, options).call);
}
Persistent Communicator::scatterv_init(const void* input, PerRank counts, PerRank displacements,
                                       void* output, std::size_t count, DataType type, int root,
                                       const CallOptions& options) {
  return impl_->make_persistent(
      scatterv_call(input, counts, displacements, output, count, type, root, options).call);
}
void Communicator::all_to_allv(const void* input, PerRank input_counts, PerRank input_displacements,
                               void* output, PerRank output_counts, PerRank output_displacements,
                               DataType type, const CallOptions& options) {
  impl_->call(all_to_allv_call(input, input_counts, input_displacements, output, output_counts,
                               output_displacements, type, options)
                  .call);
}
Work Communicator::all_to_allv_async(const void* input, PerRank input_counts,
                                     PerRank input_displacements, void* output,
                                     PerRank output_counts, PerRank output_displacements,
                                     DataType type, const CallOptions& options) {
  return impl_->call_async(all_to_allv_call(input, input_counts, input_displacements, output,
                                            output_counts, output_displacements, type, options)
                               .call);
}
Persistent Communicator::all_to_allv_init(const void* input, PerRank input_counts,
                                          PerRank input_displacements, void* output,
                                          PerRank output_counts, PerRank output_displacements,
                                          DataType type, const CallOptions& options) {
  return impl_->make_persistent(all_to_allv_call(input, input_counts, input_displacements, output,
                                                 output_counts, output_displacements, type, options)
                                    .call);
}

}  // namespace tutti
