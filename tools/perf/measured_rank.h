// Measures on one rank: it has its buffers, its calls, and the check of its results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "perf/operations.h"
#include "perf/options.h"
#include "perf/pattern.h"
#include "perf/team.h"

namespace tutti::perf {

/// Its buffers are in the host's memory, or in that of its GPU. Not thread-safe.
class MeasuredRank {
 public:
  /// Allocates the buffers. `rank` and `options` outlive this object. Throws `unavailable` if there
  /// is not enough memory.
  MeasuredRank(TeamRank& rank, const Options& options);

  /// Says how calls reduce from now on.
  void choose_reduction(DataType type, Op op);
  /// Names the algorithm of calls from now on; if it is empty, the library chooses.
  void choose_algorithm(std::string_view name) { call_options_.algorithm = name; }

  [[nodiscard]] Call call(DataType type, Op op, int root, std::size_t bytes) const {
    return call_of(options_.what, type, op, root, bytes, numbers_);
  }
  /// Returns the buffers of the call with this `number`, which matters where they rotate.
  [[nodiscard]] Buffers buffers(const Call& call, bool in_place, std::int64_t number) const;

  /// Makes a call on buffers of the host, and blocks.
  void run(const Call& call, const Buffers& buffers);
  /// Starts a call. What is to be waited for is appended to `works`.
  void start(const Call& call, const Buffers& buffers, std::vector<Work>& works);
  /// Waits for the stream of a GPU.
  void synchronize() const {
    if (rank_.gpu) rank_.gpu->synchronize();
  }

  /// Writes the input for a check, and wrong bytes where the output will be. Every check has a
  /// `seed` of its own, and so different data.
  void write_input(const Call& call, bool in_place, std::uint64_t seed);
  /// Returns how many elements of the output are wrong after that call.
  [[nodiscard]] std::size_t count_wrong(const Call& call, bool in_place, std::uint64_t seed) const;

  /// Bytes of one of the two buffers.
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }

 private:
  using Memory = std::shared_ptr<std::byte>;

  [[nodiscard]] Memory allocate() const;
  [[nodiscard]] Pattern pattern(const Call& call, std::uint64_t seed) const;
  [[nodiscard]] std::size_t wrong_blocks(const Pattern& pattern, const Call& call,
                                         const std::byte* output) const;

  TeamRank& rank_;
  const Options& options_;
  const Ranks numbers_;             // in its group
  CallOptions call_options_;        // for the reduction that is being measured
  Pattern::Element scalar_ = {};    // factor of a premultiplied sum
  const std::size_t buffer_bytes_;  // for the largest size and the alignment's shift
  Memory input_, output_;
};

}  // namespace tutti::perf
