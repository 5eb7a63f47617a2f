#include "bindings/nccl/reductions.h"

#include <algorithm>
#include <cstring>

#include "bindings/nccl/errors.h"

namespace tutti::nccl {

DataType type_of(ncclDataType_t type) {
  static constexpr std::array<DataType, ncclNumTypes> kTypes{
      DataType::int8,  DataType::uint8,  DataType::int32,  DataType::uint32,
      DataType::int64, DataType::uint64, DataType::f16,    DataType::f32,
      DataType::f64,   DataType::bf16,   DataType::f8e4m3, DataType::f8e5m2};
  require(type >= 0 && type < ncclNumTypes, "the data type is none");
  return kTypes[static_cast<std::size_t>(type)];
}

Reduction::Reduction(ncclComm& comm, ncclRedOp_t op, ncclDataType_t type, cudaStream_t stream,
                     CallOptions& options)
    : op_(find(comm, op, type, stream)) {
  if (op_ == Op::premul_sum) options.premultiplier = scalar_.data();
}

Op Reduction::find(ncclComm& comm, ncclRedOp_t op, ncclDataType_t type, cudaStream_t stream) {
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

void Reduction::read(const ncclComm& comm, const void* place, std::size_t bytes,
                     cudaStream_t stream) {
  if (comm.gpu != nullptr && comm.gpu->owns(place))
    comm.gpu->read(scalar_.data(), place, bytes, comm.device, stream);
  else
    std::memcpy(scalar_.data(), place, bytes);
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_FUNCTION(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar,
              ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded([&] {
    const auto owner = ready(comm);
    ncclComm& its = *owner;
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
    const auto owner = whole(comm);
    ncclComm& its = *owner;
    const std::lock_guard lock(its.calls);
    const auto number = static_cast<std::size_t>(static_cast<int>(op) - ncclNumOps);
    require(op >= ncclNumOps && number < its.premul_sums.size() && its.premul_sums[number].exists,
            "the reduction is none that ncclRedOpCreatePreMulSum made for this communicator");
    its.premul_sums[number].exists = false;
  });
}
