// Translates torch's reductions into tutti's.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <tutti/types.hpp>

namespace tutti::pytorch {

/// The reduction of tensors of one type. Throws ValueError for a reduction that tutti does not
/// support.
class Reduction {
 public:
  Reduction(const char* what, const c10d::ReduceOp& asked, const at::Tensor& like);

  /// Returns the factor for CallOptions::premultiplier, or null if there is none.
  const void* factor() const { return factor_.defined() ? factor_.const_data_ptr() : nullptr; }

  const DataType type;
  const Op op;

 private:
  at::Tensor factor_;
};

}  // namespace tutti::pytorch
