// The operations that nccl-tests measures: the meaning of a size, the calls, and the bandwidth.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <tutti/tutti.hpp>

namespace tutti::perf {

/// The operations of nccl-tests.
enum class Operation {
  all_reduce,
  all_gather,
  broadcast,
  reduce,
  reduce_scatter,
  alltoall,
  gather,
  scatter,
  alltoallv,  ///< Each rank sends more to ranks that are further away.
  sendrecv,   ///< Each rank sends to the next one and receives from the previous one.
  hypercube,  ///< An all_gather by sends and receives; the number of ranks is a power of two.
};

/// One call of an operation.
struct Call {
  Operation what = Operation::all_reduce;
  DataType type = DataType::f32;
  Op op = Op::sum;
  int root = 0;
  std::size_t count = 0;                        ///< The argument of the call.
  std::size_t input_count = 0;                  ///< Elements that a rank passes.
  std::size_t output_count = 0;                 ///< Elements that a rank receives.
  std::vector<std::size_t> to = {}, from = {};  ///< For alltoallv: elements to and from each rank.

  /// The size as the table shows it.
  [[nodiscard]] std::size_t bytes() const noexcept;
};

/// The collective that implements the operation in one call; none for operations that consist of
/// sends and receives, or have blocks of different lengths.
[[nodiscard]] std::optional<Collective> collective_of(Operation what) noexcept;
[[nodiscard]] bool reduces(Operation what) noexcept;
[[nodiscard]] bool has_root(Operation what) noexcept;
/// Whether the operation works in place. The others are measured out of place twice and checked
/// once; nccl-tests measures a wrong operation there and does not check it.
[[nodiscard]] bool has_in_place(Operation what) noexcept;

/// The ranks of a call. `spread` says how much more alltoallv sends to ranks that are further away,
/// from 0 (the same) to 1 (in proportion to the distance).
struct Ranks {
  int count = 1, own = 0;
  double spread = 1;
};

/// Returns the call that the table shows for `bytes`. Blocks, one for each rank, are rounded down
/// to a multiple of 16 bytes.
[[nodiscard]] Call call_of(Operation what, DataType type, Op op, int root, std::size_t bytes,
                           const Ranks& ranks);

/// The buffers of one rank: a separate input and output, or one buffer for both.
struct Buffers {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
};
/// Returns the input and the output inside `memory` where a call in place expects them.
[[nodiscard]] Buffers in_place(const Call& call, std::byte* memory, int rank);

/// Makes the call. It is blocking or, if there are `works`, it is only started, and its works are
/// appended. The rounds of a hypercube depend on each other, so that operation always blocks.
void run(Communicator& comm, const Call& call, const Buffers& buffers, const CallOptions& options,
         std::vector<Work>* works = nullptr);

/// Returns the bandwidth in GB/s of the bytes that the algorithm has to move, as
/// docs/PERFORMANCE.md of nccl-tests defines it.
[[nodiscard]] double algorithm_gb_s(const Call& call, double time_us, int ranks);
[[nodiscard]] double bus_factor(Operation what, int ranks);

}  // namespace tutti::perf
