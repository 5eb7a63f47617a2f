// Translates the types of data, and the reductions, also those of ncclRedOpCreatePreMulSum.
#pragma once

#include <array>
#include <cstddef>
#include <tutti/communicator.hpp>

#include "bindings/nccl/abi.h"
#include "bindings/nccl/communicator.h"

namespace tutti::nccl {

/// Throws ncclInvalidArgument for a number that is none of a type.
DataType type_of(ncclDataType_t type);

/// Holds a reduction, and the scalar of a premultiplied sum, to which the options of the call
/// point.
class Reduction {
 public:
  /// Throws ncclInvalidArgument if the communicator has no such reduction of the type.
  Reduction(ncclComm& comm, ncclRedOp_t op, ncclDataType_t type, cudaStream_t stream,
            CallOptions& options);
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  Op op() const noexcept { return op_; }

 private:
  Op find(ncclComm& comm, ncclRedOp_t op, ncclDataType_t type, cudaStream_t stream);
  void read(const ncclComm& comm, const void* place, std::size_t bytes, cudaStream_t stream);

  std::array<std::byte, 8> scalar_{};  // find() writes it.
  const Op op_;
};

}  // namespace tutti::nccl
