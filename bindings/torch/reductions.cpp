#include "reductions.h"

#include <c10/util/Exception.h>

#include "tensors.h"

namespace tutti::pytorch {
namespace {

Op op_of(const char* what, const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return Op::sum;
    case c10d::ReduceOp::AVG: return Op::avg;
    case c10d::ReduceOp::PRODUCT: return Op::prod;
    case c10d::ReduceOp::MIN: return Op::min;
    case c10d::ReduceOp::MAX: return Op::max;
    case c10d::ReduceOp::BAND: return Op::bit_and;
    case c10d::ReduceOp::BOR: return Op::bit_or;
    case c10d::ReduceOp::BXOR: return Op::bit_xor;
    case c10d::ReduceOp::PREMUL_SUM: return Op::premul_sum;
    default: C10_THROW_ERROR(ValueError, c10::str(what, ": no such reduction"));
  }
}

}  // namespace

Reduction::Reduction(const char* what, const c10d::ReduceOp& asked, const at::Tensor& like)
    : type(reducible(what, like)), op(op_of(what, asked)) {
  if (asked.op_ != c10d::ReduceOp::PREMUL_SUM) return;
  const auto* given = dynamic_cast<const c10d::PreMulSumSupplement*>(asked.supplement_.get());
  TORCH_CHECK_VALUE(given != nullptr, what, ": a premultiplied sum without its factor");
  const auto on_host = like.options().device(at::kCPU);  // The call reads the factor at once.
  factor_ = given->tensor_factor.defined() ? given->tensor_factor.to(on_host).contiguous()
                                           : at::full({}, given->double_factor, on_host);
}

}  // namespace tutti::pytorch
