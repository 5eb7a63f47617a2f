#include "compute/combine.h"

#include <array>
#include <cassert>
#include <string>
#include <utility>

#include <tutti/error.hpp>

#include "common/wire.h"
#include "compute/kernels.h"

namespace tutti {
namespace {

OpKernels kernels_of(DataType type) {
  switch (type) {
    case DataType::f32:
    case DataType::f64:
    case DataType::complex64:
    case DataType::complex128: return float_kernels(type);
    case DataType::f16:
    case DataType::bf16:
    case DataType::f8e4m3:
    case DataType::f8e5m2: return narrow_kernels(type);
    default: return integer_kernels(type);
  }
}

// A pair without a kernel of its own is computed in f32, or from a sum.
bool has_reduction(DataType type, Op op) {
  if (static_cast<int>(type) >= kDataTypes || static_cast<int>(op) >= kOps) return false;
  if (op == Op::premul_sum) return type != DataType::boolean;
  const DataType folded = accumulation_type(type);
  return direct_kernel(folded, op) != nullptr;
}

template <std::size_t kPair>
void blocks_of(const CombineArgs& args) {
  combine_in_blocks(args, static_cast<DataType>(kPair / kOps), static_cast<Op>(kPair % kOps));
}
template <std::size_t... kPairs>
constexpr std::array<CombineFunction, sizeof...(kPairs)> all_blocks(
    std::index_sequence<kPairs...>) {
  return {blocks_of<kPairs>...};
}
constexpr auto kBlocks = all_blocks(std::make_index_sequence<kDataTypes * kOps>());

[[noreturn]] void no_such_reduction(DataType type, Op op) {
  std::string has;
  for (int other = 0; other < kOps; ++other)
    if (has_reduction(type, static_cast<Op>(other)))
      has += (has.empty() ? "" : ", ") + std::string(to_string(static_cast<Op>(other)));
  throw Error(ErrorKind::usage, std::string(to_string(type)) + " " + std::string(to_string(op)) +
                                    ": there is no such reduction; " +
                                    std::string(to_string(type)) + " has " +
                                    (has.empty() ? "none" : has));
}

}  // namespace

CombineFunction direct_kernel(DataType type, Op op) {
  assert(static_cast<int>(type) < kDataTypes && static_cast<int>(op) < kOps);
  return kernels_of(type)[static_cast<std::size_t>(op)];
}

CombineFunction combine_function(DataType type, Op op) {
  if (!has_reduction(type, op)) no_such_reduction(type, op);
  if (const CombineFunction function = direct_kernel(type, op)) return function;
  return kBlocks[static_cast<std::size_t>(type) * kOps + static_cast<std::size_t>(op)];
}

CombineFunction combine_function(DataType type, Op op, DataType accumulate) {
  if (accumulate == type) return combine_function(type, op);
  if (!has_reduction(type, op)) no_such_reduction(type, op);
  if (accumulate != accumulation_type(type))
    throw Error(ErrorKind::usage, std::string(to_string(type)) + " " + std::string(to_string(op)) +
                                      " is not accumulated in " +
                                      std::string(to_string(accumulate)) + " but in " +
                                      std::string(to_string(accumulation_type(type))));
  return kBlocks[static_cast<std::size_t>(type) * kOps + static_cast<std::size_t>(op)];
}

CombineFunction combine_function(const UserReduction& reduction) {
  const std::string name = "reduction \"" + std::string(reduction.name) + "\"";
  if (reduction.function == nullptr) throw Error(ErrorKind::usage, name + " has no function");
  if (reduction.element_bytes < 1 || reduction.element_bytes > kMaxUserElementBytes)
    throw Error(ErrorKind::usage,
                name + ": an element of " + std::to_string(reduction.element_bytes) +
                    " bytes; possible are 1 to " + std::to_string(kMaxUserElementBytes));
  return combine_user;
}

}  // namespace tutti
