#include "topology/search/packing_program.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

constexpr double kTiny = 1e-9;

}  // namespace

PackingProgram::PackingProgram(std::vector<double> capacities)
    : rows_(capacities.size()),
      basis_(rows_),
      values_(std::move(capacities)),
      inverse_(rows_ * rows_),
      prices_(rows_) {
  assert(rows_ >= 1 && rows_ <= kMostRows);
  std::iota(basis_.begin(), basis_.end(), 0);
  for (std::size_t row = 0; row < rows_; ++row) inverse_[row * rows_ + row] = 1;
}

double PackingProgram::cost(const Column& column) const {
  double cost = 0;
  for (const Use& use : column) cost += prices_[static_cast<std::size_t>(use.row)] * use.amount;
  return cost;
}

void PackingProgram::add(Column column, StepBudget& budget) {
  columns_.push_back(std::move(column));
  // Ties are broken by the smallest number, and a program that turns in circles all the same ends
  // with what it has, which is valid.
  const std::size_t most_turns = 50 + 4 * rows_;
  for (std::size_t turn = 0; turn < most_turns; ++turn) {
    const int variable = best_entering();
    if (variable < 0 || !enter(variable, budget)) return;
  }
}

int PackingProgram::best_entering() const {
  int best = -1;
  double gain = kTiny;
  const auto consider = [&](std::size_t variable, double own) {
    if (own <= gain) return;
    gain = own;
    best = static_cast<int>(variable);
  };
  for (std::size_t row = 0; row < rows_; ++row) consider(row, -prices_[row]);
  for (std::size_t at = 0; at < columns_.size(); ++at) consider(rows_ + at, 1 - cost(columns_[at]));
  return best;
}

bool PackingProgram::enter(int variable, StepBudget& budget) {
  budget.spend(static_cast<std::int64_t>(rows_ * rows_));
  const auto number = static_cast<std::size_t>(variable);
  const Column column = number < rows_ ? Column{{variable, 1}} : columns_[number - rows_];
  std::vector<double> direction(rows_);
  for (std::size_t row = 0; row < rows_; ++row)
    for (const Use& use : column)
      direction[row] += inverse_[row * rows_ + static_cast<std::size_t>(use.row)] * use.amount;
  std::size_t leaving = rows_;
  double least = 0;
  for (std::size_t row = 0; row < rows_; ++row) {
    if (direction[row] <= kTiny) continue;
    const double ratio = values_[row] / direction[row];
    if (leaving == rows_ || ratio < least || (ratio == least && basis_[row] < basis_[leaving])) {
      leaving = row;
      least = ratio;
    }
  }
  if (leaving == rows_) return false;
  const double gain = (number < rows_ ? 0 : 1) - cost(column);
  double* const pivot = inverse_.data() + leaving * rows_;
  for (std::size_t k = 0; k < rows_; ++k) pivot[k] /= direction[leaving];
  for (std::size_t row = 0; row < rows_; ++row) {
    if (row == leaving || direction[row] == 0) continue;
    values_[row] = std::max(0.0, values_[row] - least * direction[row]);
    for (std::size_t k = 0; k < rows_; ++k) inverse_[row * rows_ + k] -= direction[row] * pivot[k];
  }
  for (std::size_t k = 0; k < rows_; ++k) prices_[k] += gain * pivot[k];
  values_[leaving] = least;
  basis_[leaving] = variable;
  return true;
}

std::vector<double> PackingProgram::amounts() const {
  std::vector<double> amounts(columns_.size());
  for (std::size_t row = 0; row < rows_; ++row)
    if (static_cast<std::size_t>(basis_[row]) >= rows_)
      amounts[static_cast<std::size_t>(basis_[row]) - rows_] = values_[row];
  return amounts;
}

double PackingProgram::sum() const {
  const std::vector<double> all = amounts();
  return std::accumulate(all.begin(), all.end(), 0.0);
}

}  // namespace tutti
