// Linear programs that pack as much as possible into capacities.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/search/flow.h"

namespace tutti {

/// Maximizes the sum of the amounts of all columns, where the amounts times what a column uses of a
/// row add up to at most the row's capacity, by the revised simplex method. Columns are added one
/// by one, as the prices of rows ask for them (Gilmore and Gomory 1961). Not thread-safe.
class PackingProgram {
 public:
  /// Says what a column uses of a row for each unit of its amount.
  struct Use {
    int row;
    double amount;
  };
  using Column = std::vector<Use>;

  static constexpr std::size_t kMostRows = 1024;

  /// There are 1 to kMostRows rows, with capacities above 0.
  explicit PackingProgram(std::vector<double> capacities);

  /// Returns the price of each row: no column is worth adding that costs 1 or more.
  const std::vector<double>& prices() const { return prices_; }
  /// Returns what the column costs by the prices.
  double cost(const Column& column) const;
  /// Adds a column and finds the best amounts.
  void add(Column column, StepBudget& budget);

  const std::vector<Column>& columns() const { return columns_; }
  /// Returns the amount of each column.
  std::vector<double> amounts() const;
  double sum() const;

 private:
  bool enter(int variable, StepBudget& budget);
  int best_entering() const;

  const std::size_t rows_;
  std::vector<Column> columns_;
  // Variable v is what is left of row v, or the amount of column v - rows_.
  std::vector<int> basis_;       // the variable of each row of the inverse
  std::vector<double> values_;   // of these variables
  std::vector<double> inverse_;  // of the basis, by rows
  std::vector<double> prices_;
};

}  // namespace tutti
