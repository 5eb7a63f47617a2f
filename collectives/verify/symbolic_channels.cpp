#include "collectives/verify/symbolic_channels.h"

#include <cassert>

namespace tutti::collectives {
namespace {

bool claim(int& owner, int lane) {
  assert(lane >= 0);
  if (owner >= 0 && owner != lane) return false;
  owner = lane;
  return true;
}

}  // namespace

SymbolicChannels::SymbolicChannels(int ranks, int window, int widest)
    : ranks_(ranks), window_(window), widest_(widest) {
  assert(ranks >= 1 && window >= 1 && widest >= 1);
}

int SymbolicChannels::id(int from, int to, int number) {
  assert(0 <= from && from < ranks_ && 0 <= to && to < ranks_ && from != to && number >= 0);
  const auto pair = static_cast<std::uint64_t>(from) * ranks_ + to;
  const auto [found, added] =
      ids_.try_emplace(pair << 32 | static_cast<std::uint64_t>(number), size());
  if (added) channels_.push_back({.from = from, .to = to, .number = number});
  return found->second;
}

int SymbolicChannels::add_sender(int from, int to, int number, int lane) {
  const int channel = id(from, to, number);
  return claim(channels_[channel].sender, lane) ? channel : -1;
}

int SymbolicChannels::add_receiver(int from, int to, int number, int lane) {
  const int channel = id(from, to, number);
  return claim(channels_[channel].receiver, lane) ? channel : -1;
}

void SymbolicChannels::reserve() {
  labels_.resize(channels_.size() * window_);
  values_.resize(labels_.size() * widest_);
}

std::span<Value> SymbolicChannels::acquire(int id) {
  assert(!full(id));
  return {values_.data() + slot(id, channels_[id].posted) * widest_,
          static_cast<std::size_t>(widest_)};
}

void SymbolicChannels::post(int id, const MessageLabel& label) {
  assert(!full(id) && label.count <= widest_);
  labels_[slot(id, channels_[id].posted++)] = label;
}

const MessageLabel& SymbolicChannels::label(int id) const {
  assert(!empty(id));
  return labels_[slot(id, channels_[id].released)];
}

std::span<const Value> SymbolicChannels::peek(int id) const {
  assert(!empty(id));
  return {values_.data() + slot(id, channels_[id].released) * widest_,
          static_cast<std::size_t>(label(id).count)};
}

SymbolicChannels::Freed SymbolicChannels::release(int id) {
  assert(!empty(id));
  Freed freed;
  freed.answered = label(id).answers;
  if (freed.answered >= 0) ++channels_[freed.answered].freed;
  ++channels_[id].released;
  if (channels_[id].answered_on >= 0) return freed;
  ++channels_[id].freed;
  freed.own = id;
  return freed;
}

}  // namespace tutti::collectives
