// Holds the ranks that one thread drives: one, or with -g several, each on a GPU.
#pragma once

#include <cassert>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <tutti/tutti.hpp>

#include "perf/gpus.h"

namespace tutti::perf {

/// Holds one rank. The GPU is declared first, since the communicators may use it until they end.
struct TeamRank {
  std::unique_ptr<GpuOfRank> gpu;     ///< It has the rank's buffers; null if the host has them.
  Communicator all;                   ///< It has all ranks that are measured.
  std::optional<Communicator> split;  ///< With NCCL_TESTS_SPLIT, the communicator of its group.

  Communicator& group() { return split ? *split : all; }
};

/// Holds the ranks of a thread. That thread alone uses it: calls of all ranks in which ranks meet
/// are started before it waits for any of them.
class Team {
 public:
  explicit Team(std::vector<TeamRank> ranks) : ranks_(std::move(ranks)) {
    assert(!ranks_.empty());
    assert(ranks_.size() == 1 || on_gpus());
  }

  std::vector<TeamRank>& ranks() noexcept { return ranks_; }
  TeamRank& front() noexcept { return ranks_.front(); }
  [[nodiscard]] bool on_gpus() const noexcept { return ranks_.front().gpu != nullptr; }
  [[nodiscard]] bool has_rank0() const noexcept { return ranks_.front().all.rank() == 0; }

  /// All teams call it.
  void barrier() {
    if (ranks_.size() == 1) return front().all.barrier();
    std::vector<Work> works;
    for (TeamRank& rank : ranks_) works.push_back(rank.all.barrier_async());
    for (Work& work : works) work.wait();
  }

  /// Returns the values of all ranks in their order. `own` are those of this team's ranks, equally
  /// many for each, one rank after the other. All teams call it.
  template <typename T>
  std::vector<T> gather(const std::vector<T>& own) {
    const std::size_t count = own.size() / ranks_.size(), bytes = count * sizeof(T);
    const std::size_t all = count * static_cast<std::size_t>(front().all.size());
    std::vector<std::vector<T>> gathered(ranks_.size(), std::vector<T>(all));
    std::vector<Work> works;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      works.push_back(ranks_[i].all.all_gather_async(own.data() + i * count, gathered[i].data(),
                                                     bytes, DataType::uint8));
    for (Work& work : works) work.wait();
    return std::move(gathered.front());
  }
  /// Does the same with one value that all ranks of the team have.
  template <typename T>
  std::vector<T> gather_one(const T& value) {
    return gather(std::vector<T>(ranks_.size(), value));
  }

 private:
  std::vector<TeamRank> ranks_;
};

}  // namespace tutti::perf
