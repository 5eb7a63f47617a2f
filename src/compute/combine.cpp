#include "compute/combine.h"

#include <array>
#include <string>

#include <tutti/error.hpp>

#include "compute/kernels.h"

namespace tutti {
namespace {

struct TypeRow {
  DataType type;
  OpKernels (*kernels)();
};
constexpr std::array kRows{
    TypeRow{DataType::f32, f32_kernels},     TypeRow{DataType::f64, f64_kernels},
    TypeRow{DataType::bf16, bf16_kernels},   TypeRow{DataType::int32, int32_kernels},
    TypeRow{DataType::int64, int64_kernels},
};

[[noreturn]] void no_such_reduction(DataType type, Op op) {
  std::string types;
  for (const TypeRow& row : kRows) {
    if (!types.empty()) types += ", ";
    types += to_string(row.type);
  }
  throw Error(ErrorKind::usage, std::string(to_string(type)) + " " + std::string(to_string(op)) +
                                    ": there is no such reduction; convert the buffer to one of " +
                                    types + " (sum, prod, min, max, avg)");
}

}  // namespace

CombineFunction combine_function(DataType type, Op op) {
  const auto index = static_cast<std::size_t>(op);
  for (const TypeRow& row : kRows) {
    if (row.type != type || index >= kOps) continue;
    if (const CombineFunction function = row.kernels()[index]) return function;
  }
  no_such_reduction(type, op);
}

}  // namespace tutti
