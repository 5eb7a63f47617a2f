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

/// Sums sparse tensors. A sum takes three calls, and the lengths of the later two are known only
/// after the first. So sums have a communicator and a thread of their own, where they run one after
/// the other in the order of the requests, which is the same on every rank. Thread-safe. The
/// destructor does not wait for sums that are under way.
class SparseSums {
 public:
  explicit SparseSums(Communicator communicator)
      : communicator_(std::make_shared<Communicator>(std::move(communicator))) {}

  /// Replaces `tensor`, in COO layout, by the sum of the tensors of all ranks. Calls `ended` once
  /// when the sum has ended. `completions` completes the future.
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
