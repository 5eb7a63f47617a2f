// Maximum flows and minimum cuts of small networks with whole capacities, within a bound of steps.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

/// Counts the steps of a search. A search whose work depends on a file ends by it, and not by the
/// time, so that every rank ends alike.
class StepBudget {
 public:
  /// `what` names the search in errors.
  StepBudget(const char* what, std::int64_t steps) : what_(what), left_(steps), most_(steps) {}
  /// Throws `unavailable` if fewer than `steps` steps are left.
  void spend(std::int64_t steps);
  std::int64_t left() const { return left_; }

 private:
  const char* what_;
  std::int64_t left_, most_;
};

/// Is a directed network. Not thread-safe.
class FlowNetwork {
 public:
  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;

  explicit FlowNetwork(int nodes) : edges_of_(static_cast<std::size_t>(nodes)) {}

  /// Adds an edge and returns its number.
  int add(int from, int to, std::int64_t capacity);
  void set_capacity(int edge, std::int64_t capacity);

  /// Returns the maximum flow (Dinic 1970), or `enough` if it is at least that. Each call begins
  /// without any flow.
  std::int64_t max_flow(int from, int to, StepBudget& budget, std::int64_t enough = kUnlimited);
  /// After max_flow() that did not end at `enough`, returns for each node whether it is on the side
  /// of `from` of the minimum cut which has the fewest nodes there.
  std::vector<bool> side_of_source() const;

 private:
  struct Edge {
    int to;
    std::int64_t capacity;
    std::int64_t left;
  };

  bool find_levels(int from, int to, StepBudget& budget);
  std::int64_t push(int at, int to, std::int64_t most, StepBudget& budget);

  std::vector<Edge> edges_;  // edge e and its reverse are 2e and 2e + 1
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> levels_;
  std::vector<std::size_t> next_;
};

}  // namespace tutti
