#include "collectives/verify/expressions.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "common/wire.h"

namespace tutti::collectives {

Expressions::Expressions(int ranks, int items, bool leaves_final)
    : ranks_(ranks),
      words_((ranks + 63) / 64),
      leaves_(ranks * items),
      leaves_final_(leaves_final),
      table_(64, kNothing),
      seen_(words_) {
  assert(ranks >= 1 && items >= 1);
}

int Expressions::item(Value value) const {
  assert(value >= 0);
  return is_leaf(value) ? value / ranks_ : node(value).item;
}

bool Expressions::is_final(Value value) const {
  assert(value >= 0);
  return is_leaf(value) ? leaves_final_ : node(value).completes;
}

std::uint64_t Expressions::hash(std::span<const Value> operands, bool completes) {
  std::uint64_t h = completes;
  for (const Value operand : operands) h = (h ^ std::uint64_t(operand)) * 0x9e3779b97f4a7c15u;
  return mix(h);
}

bool Expressions::is(const Node& node, std::span<const Value> operands, bool completes) const {
  return node.completes == completes && node.operands == operands.size() &&
         std::equal(operands.begin(), operands.end(), operands_.begin() + node.first_operand);
}

void Expressions::grow_table() {
  table_.assign(table_.size() * 2, kNothing);
  const std::size_t mask = table_.size() - 1;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    std::size_t slot =
        hash({operands_.data() + node.first_operand, node.operands}, node.completes) & mask;
    while (table_[slot] != kNothing) slot = (slot + 1) & mask;
    table_[slot] = leaves_ + static_cast<Value>(i);
  }
}

Value Expressions::fold(std::span<const Value> operands, bool completes) {
  assert(!operands.empty());
  if (operands.size() == 1 && !completes) return operands[0];
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = hash(operands, completes) & mask;
  for (; table_[slot] != kNothing; slot = (slot + 1) & mask)
    if (is(node(table_[slot]), operands, completes)) return table_[slot];

  const Value value = leaves_ + static_cast<Value>(nodes_.size());
  table_[slot] = value;
  nodes_.push_back({static_cast<std::uint32_t>(operands_.size()),
                    static_cast<std::uint32_t>(operands.size()), item(operands[0]), completes});
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  ranks_in_.resize(ranks_in_.size() + words_);
  for (const Value operand : operands)
    add_ranks(operand, {ranks_in_.data() + ranks_in_.size() - words_, std::size_t(words_)});
  if (2 * nodes_.size() > table_.size()) grow_table();
  assert(2 * nodes_.size() <= table_.size());
  return value;
}

void Expressions::add_ranks(Value value, std::span<std::uint64_t> set) const {
  if (is_leaf(value)) {
    const int rank = value % ranks_;
    set[rank / 64] |= std::uint64_t{1} << rank % 64;
    return;
  }
  const std::uint64_t* ranks = ranks_in_.data() + std::size_t(value - leaves_) * words_;
  for (int word = 0; word < words_; ++word) set[word] |= ranks[word];
}

int Expressions::counted_twice(std::span<const Value> operands) {
  if (operands.size() < 2) return -1;
  std::fill(seen_.begin(), seen_.end(), 0);
  for (const Value operand : operands) {
    if (is_leaf(operand)) {
      const int rank = operand % ranks_;
      if (seen_[rank / 64] >> rank % 64 & 1) return rank;
    } else {
      const std::uint64_t* ranks = ranks_in_.data() + std::size_t(operand - leaves_) * words_;
      for (int word = 0; word < words_; ++word)
        if (const std::uint64_t both = seen_[word] & ranks[word])
          return word * 64 + std::countr_zero(both);
    }
    add_ranks(operand, seen_);
  }
  return -1;
}

int Expressions::missing(Value value) const {
  assert(value >= 0);
  std::vector<std::uint64_t> ranks(words_);
  add_ranks(value, ranks);
  for (int rank = 0; rank < ranks_; ++rank)
    if (!(ranks[rank / 64] >> rank % 64 & 1)) return rank;
  return -1;
}

}  // namespace tutti::collectives
