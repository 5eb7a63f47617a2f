// Sums of sparse tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ATen/ATen.h>

#include <tutti/tutti.hpp>

#include "completions.h"

namespace tutti::pytorch {

/// Each sum takes three calls, and how long the later ones are shows in the first. So sums have a
/// communicator and a thread of their own, where they run one after the other, in the order in
/// which they are asked for: the same on every rank. Thread-safe; it does not wait for them when it
/// goes.
class SparseSums {
 public:
  explicit SparseSums(Communicator communicator)
      : communicator_(std::make_shared<Communicator>(std::move(communicator))) {}

  /// `tensor`, in COO layout, becomes the sum of those of all ranks. `ended` is called once it has
  /// ended. `completions`: where its future is completed.
  c10::intrusive_ptr<c10d::Work> start(const at::Tensor& tensor, std::chrono::milliseconds timeout,
                                       std::uint64_t number,
                                       std::shared_ptr<Completions> completions,
                                       std::function<void()> ended);
  void abort(const char* why) { communicator_->abort(why); }

 private:
  const std::shared_ptr<Communicator> communicator_;
  Completions tasks_;
};

}  // namespace tutti::pytorch
