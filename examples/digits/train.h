// Data-parallel training of a Network on a Dataset. The same global batch is split over the ranks,
// however many there are.
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
  // Small, so that this small network has several buckets and overlaps.
  tutti::ddp::BucketOptions buckets{std::size_t{34} << 10, std::size_t{4} << 10};
  std::string checkpoint;  // written after each epoch; empty: none
  bool resume = false;     // from `checkpoint`
};

struct Result {
  double loss = 0;      // mean cross-entropy over the training samples
  double accuracy = 0;  // on the held-out fifth, 0 to 1
};

/// What happens, as it happens. Rank 0 alone calls it, on its own thread.
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

/// Collective; the same result on every rank. `observer` may be null.
///
/// The gradient of a step is that of its batch, exactly and whatever the number of ranks: each rank
/// sums over its own samples and scales by ranks / samples of the batch, so that the ranks' average
/// is the mean over the batch. A last batch that is smaller, or smaller than the number of ranks,
/// is no special case.
Result train(tutti::Communicator& communicator, const Dataset& data, const Settings& settings,
             Observer* observer);

}  // namespace digits
