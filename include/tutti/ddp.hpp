// tutti: data-parallel training. Each rank holds the whole model and computes gradients of its
// share of the batch; this layer averages them over the ranks while backward is still running.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

namespace tutti::ddp {

/// One trainable parameter. Its values belong to the program and must exist as long as the
/// DataParallel object does.
struct Parameter {
  std::string name;               ///< Unique; errors name it.
  void* data = nullptr;           ///< May be null if `count` is 0.
  std::size_t count = 0;          ///< Number of elements.
  DataType type = DataType::f32;  ///< Floating-point or complex.
};

/// How gradients are grouped into buckets, each of which takes one all-reduce. Must agree among
/// ranks.
struct BucketOptions {
  std::size_t cap_bytes = 25u << 20;  ///< Largest size of a bucket with two or more gradients.
  /// The same limit for the first bucket of each data type. It is small, so that communication
  /// starts early.
  std::size_t first_cap_bytes = 1u << 20;
};

/// The place of one gradient in its bucket.
struct Slot {
  std::size_t parameter = 0;     ///< Index in the list of parameters.
  std::size_t offset_bytes = 0;  ///< Offset from the bucket's start; a multiple of 64.

  bool operator==(const Slot&) const = default;
};

/// Gradients of one data type, which one all-reduce averages.
struct Bucket {
  DataType type = DataType::f32;
  std::size_t bytes = 0;    ///< Size, with the padding between gradients; a multiple of 64.
  std::vector<Slot> slots;  ///< In reverse order of use, as backward completes them.

  bool operator==(const Bucket&) const = default;
};

/// Returns the buckets for parameters that are listed in the order of their use in forward. A pure
/// function: the same arguments give the same plan on every rank.
///
/// It goes through the parameters from the last to the first and fills one bucket of each data type
/// at a time. The buckets are in the order in which backward completes them. Throws `usage` for a
/// limit of 0 and for sizes that overflow.
TUTTI_API std::vector<Bucket> plan_buckets(std::span<const Parameter> parameters,
                                           const BucketOptions& options = {});

/// Returns the bytes of the gradients in `buckets`, with the padding between them.
TUTTI_API std::size_t gradient_bytes(std::span<const Bucket> buckets);

/// Says where gradients lie that a GPU computes.
struct GpuGradients {
  /// The program's memory on the GPU for all gradients, which it has set to zeros: aligned to 64
  /// bytes, and as long as gradient_bytes(plan_buckets(parameters, options.buckets)) at least. It
  /// must exist as long as the DataParallel object does.
  void* memory = nullptr;
  std::size_t bytes = 0;
  /// The stream (a cudaStream_t or CUstream; null is the default one) on which backward runs: an
  /// all-reduce begins when the stream comes to it. The same for broadcast_parameters() and
  /// check_parameters().
  void* stream = nullptr;
};

struct Options {
  BucketOptions buckets;
  std::chrono::milliseconds timeout{0};  ///< Deadline of each collective; 0: the configuration's.
  /// Set if gradients are to lie in a GPU's memory, as the parameters may. Ranks may differ in it.
  std::optional<GpuGradients> gpu = {};
};

/// Averages gradients over all ranks of a communicator while backward runs.
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
/// The gradients lie in this object's buckets, in the host's memory or in that of a GPU
/// (Options::gpu): the collectives work on the memory that backward writes, and nothing is copied.
/// To accumulate over several micro-batches, add to the gradients and call ready() in the last one.
///
/// Only the thread that uses the communicator may use this object. Between the first
/// ready() of a step and finish(), nobody else may call that communicator. Destroy this object
/// before the communicator.
///
/// Every operation may throw the communicator's errors. After `usage` nothing has changed:
/// correct the call and go on. Every other error has ended the communicator, and every later call
/// throws it again.
class TUTTI_API DataParallel {
 public:
  /// Plans the buckets and checks that all ranks passed the same options and the same parameters
  /// (number, order, names, counts, types); otherwise throws `mismatch` on every rank, with the
  /// first parameter that differs and what each rank has. Throws `usage` if Options::gpu has too
  /// little memory. Collective. `parameters` are in the order
  /// of their use in forward. Gradients are zero at first.
  DataParallel(Communicator& communicator, std::vector<Parameter> parameters,
               const Options& options = {});
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) noexcept;
  ~DataParallel();  ///< Waits for buckets that are being averaged, until their deadline at most.

  const std::vector<Parameter>& parameters() const noexcept;
  const std::vector<Bucket>& buckets() const noexcept;
  /// The number of buckets whose all-reduce has been started in this step.
  std::size_t buckets_started() const noexcept;
  /// The number of those whose average has arrived, which is the part of the communication that
  /// backward has hidden.
  std::size_t buckets_done() const noexcept;

  /// The memory of gradient `index`, aligned to 64 bytes. Its address stays the same for the life
  /// of this object. It holds the program's gradient until ready() and the average over the ranks
  /// after finish(); in between it must be neither read nor written. `type` must be the
  /// parameter's.
  void* gradient(std::size_t index, DataType type) const;

  template <typename T>
  std::span<T> gradient(std::size_t index) const {
    void* const memory = gradient(index, data_type_of<T>());
    return {static_cast<T*>(memory), parameters()[index].count};
  }

  /// Marks the gradient as final in this step. When all gradients of a bucket are marked, and every
  /// bucket before it has been started, the bucket's all-reduce starts. Returns without waiting.
  /// Gradients may be marked in any order. A gradient that a step does not use must be filled with
  /// zeros and marked like the others.
  void ready(std::size_t index);

  /// Waits for all buckets. Afterwards the gradients hold the average, with the same bits on every
  /// rank, and the next step begins. Throws `usage` if gradients have not been marked, and names
  /// them.
  void finish();

  /// Copies the parameters of `root` to every rank. Collective.
  void broadcast_parameters(int root = 0);

  /// Checks by 64-bit digests that the parameters have the same bits on every rank; otherwise
  /// throws `mismatch` on every rank, with the first parameter that differs and which ranks differ.
  /// Collective. Reads all parameters once.
  void check_parameters();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::ddp
