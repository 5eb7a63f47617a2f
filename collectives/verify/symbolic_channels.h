// The channels between all ranks, with symbols for bytes: bounded, ordered, one writer and one
// reader each.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "collectives/verify/expressions.h"

namespace tutti::collectives {

/// What a message says of itself: which step of its sender moved which chunks when.
struct MessageLabel {
  int operation = 0;
  int piece = 0;
  int step = 0;
  int chunk = 0;
  int count = 0;
  int answers = -1;  ///< The channel whose message's slot this one was written to; -1: none.
};

/// Lanes are numbers of the caller's, the same for both ends. Own thread only.
class SymbolicChannels {
 public:
  struct Channel {
    int from = 0;
    int to = 0;
    int number = 0;
    int sender = -1;    // lane; -1: nobody sends
    int receiver = -1;  // lane; -1: nobody receives
    int posted = 0;     // messages so far
    int released = 0;
    int freed = 0;  // of those released: all but answered ones whose answer is still to be released
    int answered_on = -1;  // the channel on which each of its messages is answered; -1: none
  };

  SymbolicChannels(int ranks, int window, int widest);

  /// Makes `lane` an end's owner and returns the channel's id; or -1 if another lane is.
  int add_sender(int from, int to, int number, int lane);
  int add_receiver(int from, int to, int number, int lane);
  /// Each message of `id` is answered in its slot, on channel `on`: see answers.h.
  void set_answered(int id, int on) { channels_[id].answered_on = on; }
  /// Ends the set-up.
  void reserve();

  int size() const { return static_cast<int>(channels_.size()); }
  const Channel& operator[](int id) const { return channels_[id]; }
  int id(int from, int to, int number);

  bool empty(int id) const { return channels_[id].posted == channels_[id].released; }
  bool full(int id) const { return channels_[id].posted - channels_[id].freed == window_; }

  /// The message being written; only while the channel is not full.
  std::span<Value> acquire(int id);
  void post(int id, const MessageLabel& label);
  /// The oldest message not released; only while the channel is not empty.
  const MessageLabel& label(int id) const;
  std::span<const Value> peek(int id) const;
  /// Returns the channel that has room again: this one, or that of the message which this one
  /// answers too, or none (-1, -1).
  struct Freed {
    int own = -1;
    int answered = -1;
  };
  Freed release(int id);

 private:
  std::size_t slot(int id, int message) const {
    return static_cast<std::size_t>(id) * window_ + message % window_;
  }

  const int ranks_;
  const int window_;
  const int widest_;
  std::vector<Channel> channels_;
  std::vector<MessageLabel> labels_;  // `window_` a channel
  std::vector<Value> values_;         // `widest_` a message
  std::unordered_map<std::uint64_t, int> ids_;
};

}  // namespace tutti::collectives
