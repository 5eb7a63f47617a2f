// The one method by which every library is measured, and what a library offers to it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace tutti::compare {

enum class Operation {
  all_reduce,
  all_reduce_in_place,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,  // of the output of rank 0, in place as all libraries have it
  reduce,     // to rank 0
  send_recv,  // there and back, between ranks 0 and 1, 2 and 3, ...
  barrier,
};

/// Of f32: blocks of so many elements, or one block where nothing is split. Reductions are sums.
struct Call {
  Operation operation;
  float *input, *output;
  std::size_t count;
};

/// The rank that takes part in send_recv with this one; -1: none.
[[nodiscard]] int partner(int rank, int ranks) noexcept;

/// One rank of a library that is measured. Errors are exceptions or end the program.
class Library {
 public:
  virtual ~Library() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int ranks() const = 0;
  virtual void barrier() = 0;
  /// The greatest of all ranks.
  [[nodiscard]] virtual double max(double value) = 0;
  /// What makes the call, as often as it is run; empty where the library has no such operation.
  /// Ready-made, so that it holds nothing that a program would not do at every call.
  [[nodiscard]] virtual std::function<void()> prepare(const Call& call) = 0;
};

/// `arguments`: a folder that the ranks share, an operation, sizes in bytes.
///
/// For each size: the one-way time of a cache line; one call, a barrier, calls back to back for at
/// least ten milliseconds, the slowest rank's mean; the one-way time again; one call whose results
/// are checked. With "+written" behind the operation each rank writes all that it sends before each
/// call, as a program does that computes it; what the writing alone takes is taken off.
/// A size is that of the larger buffer, at least 4 bytes for each block. Rank 0 prints
/// a line of JSON for each size. With no more ranks than cores each rank is pinned to one, so a
/// launcher should not do so: a library's own threads are left where they started. With more, of
/// machines in a box (COMPARE_MACHINES, so many) each has a share of the cores of its own.
///
/// Returns the exit status: 1 when a result is wrong.
int measure(Library& library, std::span<char* const> arguments);

}  // namespace tutti::compare
