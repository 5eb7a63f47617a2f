// Tensors as buffers of tutti's calls.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <tutti/types.hpp>

namespace tutti::pytorch {

/// What a tensor's elements are to a call that only moves them: their type, or bytes where tutti
/// has no such type.
struct Elements {
  DataType type;
  std::size_t count;
};
Elements elements(const at::Tensor& tensor);
/// To a call that reduces them. Throws ValueError for a type that tutti does not reduce.
DataType reducible(const char* what, const at::Tensor& tensor);

/// Throws ValueError unless it is a strided tensor in the host's memory.
void check_tensor(const char* what, const at::Tensor& tensor);
/// And it is one whose elements do not share memory, so that it can be written.
void check_output(const char* what, const at::Tensor& tensor);
/// The only one of a list: torch's interface takes lists, a rank has one tensor.
at::Tensor& only(const char* what, std::vector<at::Tensor>& tensors);
/// All have `like`'s type.
void check_types(const char* what, const std::vector<at::Tensor>& tensors, const at::Tensor& like);

/// Contiguous tensors anywhere in memory as blocks of one buffer, by rank: displacements are
/// differences of addresses. (Such calls have counts on every rank: where blocks lie is not the
/// same on all of them, so that no rank may take the call without.)
struct Blocks {
  std::byte* base = nullptr;
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements;
};
Blocks blocks_of(const char* what, const std::vector<at::Tensor>& tensors, DataType type);

}  // namespace tutti::pytorch
