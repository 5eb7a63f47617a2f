// Data-parallel training of a Network on a Dataset. The global batch is the same for any number of
// ranks, and is split over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/ddp.hpp>
#include <tutti/tutti.hpp>

#include "idx.h"

namespace digits {

struct Settings {
  std::vector<std::size_t> hidden{128, 64};  // widths of the hidden layers
  std::size_t epochs = 30;
  std::size_t batch = 64;  // samples of one step, over all ranks
  float learning_rate = 0.05f;
  float momentum = 0.9f;
  std::uint64_t seed = 1;
  // The limits are small, so that this small network has several buckets and they overlap with
  // backward.
  tutti::ddp::BucketOptions buckets{std::size_t{34} << 10, std::size_t{4} << 10};
  std::string checkpoint;  // written after each epoch; not written if empty
  bool resume = false;     // whether to start from `checkpoint`
};

struct Result {
  double loss = 0;      // mean cross-entropy over the training samples
  double accuracy = 0;  // on the held-out fifth, 0 to 1
};

/// Receives events as training goes on. Only rank 0 calls it, on its own thread.
class Observer {
 public:
  struct Start {
    std::size_t training, held_out, values, buckets, epochs_done;
    int ranks;
  };
  virtual ~Observer() = default;
  virtual void started(const Start& start) = 0;
  virtual void stepped(std::size_t epoch, std::size_t step, std::size_t steps) = 0;
  virtual void finished_epoch(std::size_t epoch, const Result& result) = 0;
};

/// Throws `usage`, which begins with `who`, for settings with which one cannot train.
void check(const Dataset& data, const Settings& settings, const std::string& who);

/// Trains the network. Collective; the result is the same on every rank. `observer` may be null.
///
/// The gradient of a step is exactly that of its batch, for any number of ranks: each rank sums
/// over its own samples and scales by ranks / samples of the batch, so that the average over the
/// ranks is the mean over the batch. This also holds for a last batch that is smaller, or smaller
/// than the number of ranks.
Result train(tutti::Communicator& communicator, const Dataset& data, const Settings& settings,
             Observer* observer);

}  // namespace digits
