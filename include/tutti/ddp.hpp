// tutti: data-parallel training. Each rank holds the whole model and computes gradients of its
// share of the batch; this layer averages them over the ranks while backward is still running.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

namespace tutti::ddp {

/// One trainable parameter: its values live in the program's memory for as long as DataParallel
/// does.
struct Parameter {
  std::string name;               ///< Unique; what errors call it.
  void* data = nullptr;           ///< May be null where `count` is 0.
  std::size_t count = 0;          ///< Elements.
  DataType type = DataType::f32;  ///< Floating-point or complex.
};

/// How gradients are put together for one all-reduce each. Must agree among ranks.
struct BucketOptions {
  std::size_t cap_bytes = 25u << 20;  ///< A bucket holds no more, or one gradient alone.
  /// The same for the first bucket of each data type: small, so that communication starts early.
  std::size_t first_cap_bytes = 1u << 20;
};

/// Where one gradient lies in its bucket.
struct Slot {
  std::size_t parameter = 0;     ///< Its index in the list of parameters.
  std::size_t offset_bytes = 0;  ///< From the bucket's start; a multiple of 64.

  bool operator==(const Slot&) const = default;
};

/// Gradients of one data type that are averaged by one all-reduce.
struct Bucket {
  DataType type = DataType::f32;
  std::size_t bytes = 0;    ///< With the padding between gradients: a multiple of 64.
  std::vector<Slot> slots;  ///< In reverse order of use: as backward produces them.

  bool operator==(const Bucket&) const = default;
};

/// The buckets for parameters listed in the order of their use in forward. Pure: the same arguments
/// give the same plan on every rank.
///
/// Walks the parameters from the last to the first and fills one bucket of each data type at a
/// time; the buckets come in the order in which backward completes them. Throws `usage` for a cap
/// of 0 and for sizes that overflow.
TUTTI_API std::vector<Bucket> plan_buckets(std::span<const Parameter> parameters,
                                           const BucketOptions& options = {});

struct Options {
  BucketOptions buckets;
  std::chrono::milliseconds timeout{0};  ///< Deadline of each collective; 0: the configuration's.
};

/// Averages gradients over all ranks of a communicator, overlapped with backward.
///
///     tutti::ddp::DataParallel ddp(communicator, parameters);
///     ddp.broadcast_parameters();
///     for (each step) {
///       backward: for each parameter i, from the last to the first:
///         write ddp.gradient<float>(i);
///         ddp.ready(i);
///       ddp.finish();
///       update the parameters from ddp.gradient<float>(i);
///     }
///
/// Gradients live in this object's buckets: what backward writes is what travels, and nothing is
/// copied. To accumulate over several micro-batches, add into the gradients and call ready() in the
/// last one.
///
/// Thread safety: own thread only, the one that uses the communicator. Between the first ready() of
/// a step and finish(), that communicator is this object's. Destroy this object before it.
///
/// Errors, beside the communicator's own: `usage` changes nothing (correct the call and go on).
/// Every other kind has ended the communicator, and every later call throws it again.
class TUTTI_API DataParallel {
 public:
  /// Plans the buckets and makes sure that all ranks gave the same options and the same parameters
  /// (number, order, names, counts, types): else throws `mismatch`, on every rank, with the first
  /// parameter that differs and what each rank has. Collective. `parameters` stand in the order of
  /// their use in forward. Gradients are zero at first.
  DataParallel(Communicator& communicator, std::vector<Parameter> parameters,
               const Options& options = {});
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) noexcept;
  ~DataParallel();  ///< Waits for buckets under way, at most to their deadline.

  const std::vector<Parameter>& parameters() const noexcept;
  const std::vector<Bucket>& buckets() const noexcept;
  /// Buckets whose all-reduce has been started in this step.
  std::size_t buckets_started() const noexcept;
  /// Those of them whose average has arrived: how much of the communication backward has hidden.
  std::size_t buckets_done() const noexcept;

  /// The memory of gradient `index`: at one place for the life of this object, aligned to 64 bytes.
  /// Holds the program's gradient until ready(), the ranks' average after finish(), and may be
  /// touched neither way in between. `type` must be the parameter's.
  void* gradient(std::size_t index, DataType type) const;

  template <typename T>
  std::span<T> gradient(std::size_t index) const {
    void* const memory = gradient(index, data_type_of<T>());
    return {static_cast<T*>(memory), parameters()[index].count};
  }

  /// The gradient is final in this step. When all of a bucket's are, and every bucket before it has
  /// been started, its all-reduce starts; returns without waiting. In any order; a gradient that a
  /// step does not use is filled with zeros and marked like the others.
  void ready(std::size_t index);

  /// Waits for all buckets: afterwards the gradients hold the average, with the same bits on every
  /// rank, and the next step begins. Throws `usage` where gradients are not ready, and names them.
  void finish();

  /// The parameters of `root`, everywhere. Collective.
  void broadcast_parameters(int root = 0);

  /// Makes sure that the parameters have the same bits on every rank (by 64-bit digests): else
  /// throws `mismatch`, on every rank, with the first parameter that differs and which ranks
  /// differ. Collective. Reads all parameters once.
  void check_parameters();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::ddp
