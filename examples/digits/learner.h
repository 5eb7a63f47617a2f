// A network in training: its state, one step of it on the ranks of a communicator, and its measure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <tutti/ddp.hpp>

#include "network.h"
#include "samples.h"
#include "train.h"

namespace digits {

/// All ranks have the same state, to the bit. The order of the samples is a function of the seed
/// and the number of the epoch alone, and a step's batch is shared out among the ranks that are
/// there.
///
/// One that is recoverable can undo its last step, and counts how often each sample has been in a
/// step: each rank marks its own samples, and the marks are averaged over the ranks with the
/// gradients, as those of one more parameter.
class Learner {
 public:
  enum class Kind { plain, recoverable };

  Learner(const Dataset& data, const Settings& settings, Kind kind = Kind::plain);
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  /// Takes its steps with the ranks of `communicator` from now on. Collective. Call detach() before
  /// the communicator ends.
  void attach(tutti::Communicator& communicator);
  void detach();
  tutti::ddp::DataParallel& ddp() { return *ddp_; }

  std::size_t steps_per_epoch() const;
  /// Takes step number `step` of the epoch. Collective. If it throws, the state is as before. Calls
  /// `midway` after the first gradients are ready.
  void take_step(std::size_t epoch, std::size_t step, const std::function<void()>& midway = {});
  /// Goes back to the state before the last step, once. Only for one that is recoverable.
  void undo_step();
  /// Collective, as it shares the samples out.
  Result measure();

  const Split& split() const { return split_; }
  const std::vector<std::size_t>& widths() const { return network_.widths(); }
  std::span<float> values() { return network_.values(); }
  std::span<float> velocity() { return velocity_; }
  /// How often each training sample was in a step; empty if this is not recoverable.
  std::span<float> counts() { return counts_; }

 private:
  struct State {
    std::vector<float> values, velocity, counts;
  };

  /// The places in split().training of the samples of one step.
  std::span<const std::size_t> batch_of(std::size_t epoch, std::size_t step);
  void mark(std::span<const std::size_t> mine);
  void update();
  Loss loss_over(std::span<const std::size_t> samples);

  const Dataset& data_;
  const Settings& settings_;
  const Split split_;
  Network network_;
  std::vector<float> velocity_;  // laid out like the network's values
  std::vector<float> counts_;
  State before_;  // the last step; empty if that was undone, or this is not recoverable
  std::optional<std::size_t> ordered_epoch_;
  std::vector<std::size_t> order_;  // of that epoch

  tutti::Communicator* communicator_ = nullptr;
  std::optional<tutti::ddp::DataParallel> ddp_;  // refers to the network's values
  std::vector<std::span<float>> gradients_;      // in the buckets of ddp_
  std::span<float> marks_;                       // there, too
};

}  // namespace digits
