// The collectives as nccl-tests measures them: what a size means, what is called, what the
// bandwidth is.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <tutti/tutti.hpp>

namespace tutti::perf {

/// What nccl-tests measures.
enum class Operation {
  all_reduce,
  all_gather,
  broadcast,
  reduce,
  reduce_scatter,
  alltoall,
  gather,
  scatter,
  alltoallv,  ///< More to ranks that are further away.
  sendrecv,   ///< Each to the next rank, and from the one before.
  hypercube,  ///< An all_gather by sends and receives; a power of two of ranks.
};

/// A call of one size.
struct Call {
  Operation what = Operation::all_reduce;
  DataType type = DataType::f32;
  Op op = Op::sum;
  int root = 0;
  std::size_t count = 0;                        ///< The call's argument.
  std::size_t input_count = 0;                  ///< Elements that a rank gives,
  std::size_t output_count = 0;                 ///< and gets.
  std::vector<std::size_t> to = {}, from = {};  ///< alltoallv: elements to and from each rank.

  /// The size column.
  [[nodiscard]] std::size_t bytes() const noexcept;
};

/// The collective that it is one call of; none for those of sends and receives, and of lengths that
/// differ.
[[nodiscard]] std::optional<Collective> collective_of(Operation what) noexcept;
[[nodiscard]] bool reduces(Operation what) noexcept;
[[nodiscard]] bool has_root(Operation what) noexcept;
/// The others are measured out of place twice, and checked once; nccl-tests measures there what
/// cannot be right, and does not check it.
[[nodiscard]] bool has_in_place(Operation what) noexcept;

/// Who calls. `spread`: what alltoallv sends further to ranks further away, from 0 (all the same)
/// to 1 (in proportion to the distance).
struct Ranks {
  int count = 1, own = 0;
  double spread = 1;
};

/// The call that a table shows under `bytes`: blocks, one for each rank, are cut down to a
/// multiple of 16 bytes.
[[nodiscard]] Call call_of(Operation what, DataType type, Op op, int root, std::size_t bytes,
                           const Ranks& ranks);

/// The buffers of one rank: an input and an output of their own, or one for both.
struct Buffers {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
};
/// Both inside `memory`, where the operation wants them for a call in place.
[[nodiscard]] Buffers in_place(const Call& call, std::byte* memory, int rank);

void run(Communicator& comm, const Call& call, const Buffers& buffers, const CallOptions& options);
/// The same, asynchronous: adds what to wait for. The rounds of a hypercube depend on each other,
/// so that it blocks.
void start(Communicator& comm, const Call& call, const Buffers& buffers, const CallOptions& options,
           std::vector<Work>& works);

/// Bytes a second over all links of what the algorithm moves at least, as docs/PERFORMANCE.md of
/// nccl-tests derives it.
[[nodiscard]] double algorithm_gb_s(const Call& call, double time_us, int ranks);
[[nodiscard]] double bus_factor(Operation what, int ranks);

}  // namespace tutti::perf
