#include "tensors.h"

#include <cassert>
#include <optional>

#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

namespace tutti::pytorch {
namespace {

std::optional<DataType> type_of(at::ScalarType type) {
  switch (type) {
    case at::kChar: return DataType::int8;
    case at::kByte: return DataType::uint8;
    case at::kShort: return DataType::int16;
    case at::kUInt16: return DataType::uint16;
    case at::kInt: return DataType::int32;
    case at::kUInt32: return DataType::uint32;
    case at::kLong: return DataType::int64;
    case at::kUInt64: return DataType::uint64;
    case at::kHalf: return DataType::f16;
    case at::kBFloat16: return DataType::bf16;
    case at::kFloat: return DataType::f32;
    case at::kDouble: return DataType::f64;
    case at::kFloat8_e4m3fn: return DataType::f8e4m3;
    case at::kFloat8_e5m2: return DataType::f8e5m2;
    case at::kComplexFloat: return DataType::complex64;
    case at::kComplexDouble: return DataType::complex128;
    case at::kBool: return DataType::boolean;
    default: return std::nullopt;
  }
}

std::byte* address(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

}  // namespace

Elements elements(const at::Tensor& tensor) {
  if (const auto type = type_of(tensor.scalar_type()))
    return {*type, static_cast<std::size_t>(tensor.numel())};
  return {DataType::uint8, tensor.nbytes()};
}

DataType reducible(const char* what, const at::Tensor& tensor) {
  const auto type = type_of(tensor.scalar_type());
  TORCH_CHECK_VALUE(type, what, ": tutti does not reduce tensors of type ", tensor.scalar_type());
  return *type;
}

void check_tensor(const char* what, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), what, ": a tensor is undefined");
  TORCH_CHECK_VALUE(tensor.device().is_cpu() || tensor.device().is_cuda(), what,
                    ": the tensor is on ", tensor.device(),
                    ", and tutti moves tensors in the memory of the host and of CUDA's GPUs; use "
                    ".cpu(), or give this device another backend: "
                    "init_process_group(\"cpu:tutti,xpu:xccl\")");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, what, ": the tensor's layout is ",
                    tensor.layout(), ", and only all_reduce of sparse COO tensors is not dense");
}

void check_output(const char* what, const at::Tensor& tensor) {
  check_tensor(what, tensor);
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, what,
                    ": elements of the tensor share memory (expanded?), so that it cannot be "
                    "written; use .contiguous()");
}

at::Tensor& only(const char* what, std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what, ": takes one tensor a rank, and got ",
                    tensors.size());
  return tensors.front();
}

void check_types(const char* what, const std::vector<at::Tensor>& tensors, const at::Tensor& like) {
  for (const at::Tensor& each : tensors)
    TORCH_CHECK_VALUE(each.scalar_type() == like.scalar_type(), what,
                      ": the tensors of a call have one type, and these are ", each.scalar_type(),
                      " and ", like.scalar_type());
}

Blocks blocks_of(const char* what, const std::vector<at::Tensor>& tensors, DataType type) {
  Blocks blocks;
  for (const at::Tensor& each : tensors)
    if (each.numel() > 0 && (blocks.base == nullptr || address(each) < blocks.base))
      blocks.base = address(each);
  const std::size_t bytes = size_of(type);
  for (const at::Tensor& each : tensors) {
    const std::size_t count = elements(each).count;
    const auto apart =
        count > 0 ? static_cast<std::size_t>(address(each) - blocks.base) : std::size_t{0};
    TORCH_CHECK_VALUE(apart % bytes == 0, what, ": the tensors lie ", apart,
                      " bytes apart, which is no multiple of an element's ", bytes,
                      "; use .clone()");
    blocks.counts.push_back(count);
    blocks.displacements.push_back(apart / bytes);
  }
  assert(blocks.counts.size() == tensors.size());
  return blocks;
}

}  // namespace tutti::pytorch
