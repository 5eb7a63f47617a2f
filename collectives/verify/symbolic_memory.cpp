#include "collectives/verify/symbolic_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "collectives/formats/print.h"

namespace tutti::collectives {

SymbolicMemory::SymbolicMemory(std::span<const Schedule> schedules, const VerifyOptions& options)
    : options_(options),
      what_(schedules[0].what),
      ranks_(static_cast<int>(schedules.size())),
      root_(schedules[0].root),
      chunks_(schedules[0].chunks),
      positions_(positions(what_, ranks_, chunks_)),
      expressions_(ranks_, options.operations * options.pieces * chunks_, !reduces(what_)),
      agreed_(what_ == Collective::all_reduce ? item(options.operations, 0, 0) : 0, kNothing),
      cells_(ranks_),
      given_(ranks_) {
  for (int rank = 0; rank < ranks_; ++rank) {
    cells_[rank].assign(cell({Place::scratch, schedules[rank].scratch_chunks}, 0), kNothing);
    given_[rank].resize(cells_[rank].size());
  }
}

void SymbolicMemory::begin_operation(int rank, int operation) {
  assert(operation < options_.operations);
  std::vector<Value>& cells = cells_[rank];
  std::fill_n(cells.begin(), cell({Place::scratch, 0}, 0), kNothing);
  for (int piece = 0; piece < options_.pieces; ++piece)
    for (int chunk = 0; chunk < chunks_; ++chunk)
      if (input_exists(call(rank), chunk)) {
        const std::size_t at = cell({Place::input, chunk}, piece);
        cells[at] = expressions_.leaf(rank, item(operation, piece, chunk));
        given_[rank][at] = true;
      }
}

Value SymbolicMemory::read(int rank, const Operand& place, int piece) const {
  const std::size_t at = cell(place, piece);
  if (reduces(what_) && place.place == Place::input && !given_[rank][at])
    throw Rejected{fmt::format(
        "reads {} after it was written over as output[{}]: a premultiplied sum would multiply it "
        "again",
        to_text(place), place.index)};
  if (reduces(what_) && place.place == Place::output && given_[rank][at]) return kNothing;
  return cells_[rank][at];
}

void SymbolicMemory::write(int rank, const Operand& place, int piece, Value value) {
  assert(place.place == Place::output || place.place == Place::scratch);
  const std::size_t at = cell(place, piece);
  Value& held = cells_[rank][at];
  // In place, the input of another chunk may lie where all_to_all writes its output.
  const bool same_chunk = held != kNothing && expressions_.item(held) % chunks_ == place.index;
  if (place.place == Place::output && what_ != Collective::barrier && same_chunk &&
      expressions_.is_final(held))
    throw Rejected{fmt::format("writes {}, which is complete already", to_text(place))};
  held = value;
  given_[rank][at] = false;
}

Value SymbolicMemory::combine(std::span<const Value> values, const std::vector<Operand>& places,
                              int item, bool completes) {
  assert(values.size() == places.size());
  const bool combines = completes || values.size() > 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == kNothing)
      throw Rejected{fmt::format("reads {}, where nothing was written", to_text(places[i]))};
    if (item != kAnyItem && expressions_.item(values[i]) != item)
      throw Rejected{fmt::format("reads {}, expecting {}, but finds {}", to_text(places[i]),
                                 item_text(item), item_text(expressions_.item(values[i])))};
    if (combines && what_ != Collective::barrier && expressions_.is_final(values[i]))
      throw Rejected{fmt::format("{} {}, which is complete already",
                                 completes ? "completes" : "reduces", to_text(places[i]))};
  }
  // A barrier's messages carry no data, so it does no harm to receive a rank's contribution twice.
  const int twice = what_ == Collective::barrier ? -1 : expressions_.counted_twice(values);
  if (twice >= 0)
    throw Rejected{fmt::format("double contribution: adds rank {}'s input twice", twice)};
  return expressions_.fold(values, completes);
}

void SymbolicMemory::check_results(int rank, int operation,
                                   const std::function<std::string(int chunk)>& writer) {
  for (int piece = 0; piece < options_.pieces; ++piece)
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      if (!output_exists(call(rank), chunk)) continue;
      try {
        check_result(item(operation, piece, chunk), read(rank, {Place::output, chunk}, piece));
      } catch (Rejected& rejected) {
        throw Rejected{fmt::format("rank {}: the output's {} ({}) {}", rank,
                                   item_text(item(operation, piece, chunk)), writer(chunk),
                                   rejected.why)};
      }
    }
}

void SymbolicMemory::check_result(int item, Value value) {
  assert(item >= 0);
  if (value == kNothing) throw Rejected{"is never written"};
  if (!reduces(what_) && what_ != Collective::barrier) {
    const int source = source_of(call(0), item % chunks_);
    if (value != expressions_.leaf(source, item))
      throw Rejected{fmt::format("is not rank {}'s", source)};
    return;
  }
  if (const int missing = expressions_.missing(value); missing >= 0)
    throw Rejected{fmt::format("misses the contribution of rank {}", missing)};
  if (what_ == Collective::barrier) return;
  if (!expressions_.is_final(value)) throw Rejected{"is never completed"};
  if (what_ != Collective::all_reduce) return;
  if (agreed_[item] == kNothing) agreed_[item] = value;
  if (agreed_[item] != value)
    throw Rejected{"is reduced in another order than on other ranks: their bits would differ"};
}

std::string SymbolicMemory::item_text(int item) const {
  assert(item >= 0);
  const int moment = item / chunks_;
  return fmt::format("chunk {} of {}", item % chunks_,
                     moment_text(moment / options_.pieces, moment % options_.pieces));
}

}  // namespace tutti::collectives
