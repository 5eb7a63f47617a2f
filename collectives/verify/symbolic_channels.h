// The channels between all ranks, with symbols in place of bytes: bounded and ordered, with one
// writer and one reader each.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "collectives/verify/expressions.h"

namespace tutti::collectives {

/// Describes a message: which step of its sender moved which chunks, in which piece and operation.
struct MessageLabel {
  int operation = 0;
  int piece = 0;
  int step = 0;
  int chunk = 0;
  int count = 0;
  int answers = -1;  ///< The channel of the message that this one answers in its slot, or -1.
};

/// All channels of a run. The caller numbers the lanes of all ranks. Used by one thread.
class SymbolicChannels {
 public:
  struct Channel {
    int from = 0;
    int to = 0;
    int number = 0;
    int sender = -1;    // lane, or -1 if nobody sends
    int receiver = -1;  // lane, or -1 if nobody receives
    int posted = 0;     // number of messages so far
    int released = 0;
    int freed = 0;  // number of released messages whose slot is free: all but the answered ones
                    // whose answer has not been released yet
    int answered_on = -1;  // the channel on which each of its messages is answered, or -1
  };

  SymbolicChannels(int ranks, int window, int widest);

  /// Makes `lane` the owner of a channel's end. Returns the channel's id, or -1 if another lane
  /// owns the end.
  int add_sender(int from, int to, int number, int lane);
  int add_receiver(int from, int to, int number, int lane);
  /// Declares that each message of channel `id` is answered in its slot, on channel `on`: see
  /// answers.h.
  void set_answered(int id, int on) { channels_[id].answered_on = on; }
  /// Allocates the memory of all channels, after the last of them has been added.
  void reserve();

  int size() const { return static_cast<int>(channels_.size()); }
  const Channel& operator[](int id) const { return channels_[id]; }
  int id(int from, int to, int number);

  bool empty(int id) const { return channels_[id].posted == channels_[id].released; }
  bool full(int id) const { return channels_[id].posted - channels_[id].freed == window_; }

  /// Returns the slot of the next message, to be written before post(). The channel must not be
  /// full.
  std::span<Value> acquire(int id);
  void post(int id, const MessageLabel& label);
  /// Describes the oldest message that has not been released. The channel must not be empty.
  const MessageLabel& label(int id) const;
  std::span<const Value> peek(int id) const;
  /// The channels in which a release() has freed a slot, or -1: the message's own channel, and the
  /// channel of the message that this one answered.
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
  std::vector<MessageLabel> labels_;  // `window_` for each channel
  std::vector<Value> values_;         // `widest_` for each message
  std::unordered_map<std::uint64_t, int> ids_;
};

}  // namespace tutti::collectives
