// Tensors as buffers of tutti's calls.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/ATen.h>

#include <tutti/types.hpp>

namespace tutti::pytorch {

/// Returns the elements of a tensor for a call that only moves them: their type, or bytes if tutti
/// has no such type.
struct Elements {
  DataType type;
  std::size_t count;
};
Elements elements(const at::Tensor& tensor);
/// Returns the type of the elements for a call that reduces them. Throws ValueError for a type that
/// tutti does not reduce.
DataType reducible(const char* what, const at::Tensor& tensor);

/// Throws ValueError unless it is a strided tensor in the memory of the host or of CUDA's GPUs.
void check_tensor(const char* what, const at::Tensor& tensor);
/// Does the same, and throws ValueError if elements share memory, since such a tensor cannot be
/// written.
void check_output(const char* what, const at::Tensor& tensor);
/// Returns the only tensor of a list: torch's interface takes lists, but a rank has one tensor.
at::Tensor& only(const char* what, std::vector<at::Tensor>& tensors);
/// Throws ValueError unless all have `like`'s type.
void check_types(const char* what, const std::vector<at::Tensor>& tensors, const at::Tensor& like);

/// Contiguous tensors anywhere in memory as blocks of one buffer, one for each rank: displacements
/// are differences of addresses. Calls that use it pass counts on every rank, since the addresses
/// differ between ranks, and no rank may use the form without counts while others use the form with
/// them.
struct Blocks {
  std::byte* base = nullptr;
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements;
};
Blocks blocks_of(const char* what, const std::vector<at::Tensor>& tensors, DataType type);

}  // namespace tutti::pytorch
