#include "compute/combine.h"

#include <array>
#include <string>
#include <utility>

#include <tutti/error.hpp>

#include "common/wire.h"
#include "compute/kernels.h"

namespace tutti {
namespace {

struct TypeRow {
  DataType type;
  OpKernels (*kernels)();
};
constexpr std::array<TypeRow, kDataTypes> kRows{{
    {DataType::int8, int8_kernels},
    {DataType::uint8, uint8_kernels},
    {DataType::int16, int16_kernels},
    {DataType::uint16, uint16_kernels},
    {DataType::int32, int32_kernels},
    {DataType::uint32, uint32_kernels},
    {DataType::int64, int64_kernels},
    {DataType::uint64, uint64_kernels},
    {DataType::f16, f16_kernels},
    {DataType::bf16, bf16_kernels},
    {DataType::f32, f32_kernels},
    {DataType::f64, f64_kernels},
    {DataType::f8e4m3, f8e4m3_kernels},
    {DataType::f8e5m2, f8e5m2_kernels},
    {DataType::complex64, complex64_kernels},
    {DataType::complex128, complex128_kernels},
    {DataType::boolean, bool_kernels},
}};

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
  const TypeRow& row = kRows[static_cast<std::size_t>(type)];
  static_assert([] {
    for (std::size_t t = 0; t < kRows.size(); ++t)
      if (kRows[t].type != static_cast<DataType>(t)) return false;
    return true;
  }());
  return row.kernels()[static_cast<std::size_t>(op)];
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
