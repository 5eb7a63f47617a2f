// tutti as a backend of torch.distributed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <c10/util/FunctionRef.h>

#include <tutti/tutti.hpp>

#include "completions.h"
#include "sparse.h"
#include "streams.h"
#include "work.h"

namespace tutti::pytorch {

inline constexpr const char* kName = "tutti";

/// The options with which torch has made a call.
struct Terms {
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool async = true;
  const void* factor = nullptr;  ///< The factor of a premultiplied sum.
  Received* received = nullptr;
  Lane lane = Lane::collectives;  ///< Where a call on a GPU runs.
};

/// Makes a call with these options, and returns its handle if it is asynchronous.
using CallFunction = c10::function_ref<tutti::Work(Communicator&, const CallOptions&, bool async)>;

/// The process group on this rank, which has a communicator of its own. Tensors are in the host's
/// memory or a GPU's, strided, and need not be contiguous (such tensors are copied). Several
/// threads may call it; calls on the host that block (async_op=False) run in the calling thread.
///
/// Functions that only some versions of torch declare are written without `override`; they override
/// where the base class has them.
class Backend final : public c10d::Backend {
 public:
  using Handle = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  /// Blocks until all ranks of the group have joined.
  Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
          std::chrono::milliseconds timeout);
  Backend(Communicator&& communicator, std::chrono::milliseconds timeout);
  ~Backend() override;

  const std::string getBackendName() const override { return kName; }
  virtual bool supportsSplitting() const { return true; }
  virtual bool supportsShrinking() const { return true; }
  virtual bool supportsCoalescing() const { return true; }
  virtual c10::intrusive_ptr<Options> getBackendOptions();
  virtual void setTimeout(std::chrono::milliseconds timeout);
  virtual c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::vector<int>& ranks,
                                                  const c10::intrusive_ptr<Options>& options);
  virtual c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const c10::intrusive_ptr<Options>& options,
                                                  const int& rank, const int& size);
  /// Makes the process group of those ranks that are not in `excluded`. They all call it with the
  /// same list, in ascending order. `flags` says whether calls that are under way are aborted; else
  /// it waits for them.
  virtual c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& excluded,
                                                   int flags,
                                                   const c10::intrusive_ptr<Options>& options);

  Handle broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Handle allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Handle allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Handle allreduce_coalesced(Tensors& tensors,
                             const c10d::AllreduceCoalescedOptions& options) override;
  Handle reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Handle allgather(TensorLists& outputs, Tensors& inputs,
                   const c10d::AllgatherOptions& options) override;
  Handle _allgather_base(at::Tensor& output, at::Tensor& input,
                         const c10d::AllgatherOptions& options) override;
  Handle allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                             const c10d::AllgatherOptions& options) override;
  Handle allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) override;
  Handle gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Handle scatter(Tensors& outputs, TensorLists& inputs,
                 const c10d::ScatterOptions& options) override;
  Handle reduce_scatter(Tensors& outputs, TensorLists& inputs,
                        const c10d::ReduceScatterOptions& options) override;
  Handle _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                              const c10d::ReduceScatterOptions& options) override;
  Handle reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::ReduceScatterOptions& options) override;
  Handle alltoall_base(at::Tensor& output, at::Tensor& input,
                       std::vector<std::int64_t>& output_splits,
                       std::vector<std::int64_t>& input_splits,
                       const c10d::AllToAllOptions& options) override;
  Handle alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Handle barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  Handle send(Tensors& tensors, int to, int tag) override;
  Handle recv(Tensors& tensors, int from, int tag) override;
  Handle recvAnysource(Tensors& tensors, int tag) override;

  /// The calls between these two are started together, by endCoalescing().
  virtual void startCoalescing();
  virtual Handle endCoalescing();

  /// Returns memory of a tutti::Buffer, which DistributedDataParallel uses for its buckets, so that
  /// collectives on it copy nothing into messages. Returns ordinary memory if there is no such
  /// memory left. The tensor may outlive this object.
  virtual bool supportsTensorAlloc(c10::DeviceIndex device) { return device < 0; }  // the host
  virtual at::Tensor allocateTensor(long size, at::TensorOptions options);

  void setSequenceNumberForGroup() override {}  // every rank counts the same calls
  std::uint64_t getSequenceNumberForGroup() override { return number_; }
  virtual c10d::ErrorType getError();

  /// Ends all calls that are under way, on this rank and its peers, with an error.
  virtual void abort() { end_calls("its process group was aborted"); }
  /// Waits five seconds for calls that are under way, then aborts them, and leaves the group.
  virtual void shutdown();

 private:
  using WorkPtr = c10::intrusive_ptr<Work>;

  /// Profilers show `title` and `inputs`.
  WorkPtr work(c10d::OpType what, const char* title, const Tensors& inputs);
  Handle issue(WorkPtr work, const Terms& terms, CallFunction call);
  void start_together(std::vector<WorkPtr> parts, const WorkPtr& whole, tutti::Work handle);
  void begins();  // counts a call that is under way
  void ends();
  std::chrono::milliseconds timeout_of(const Terms& terms) const;
  [[noreturn]] void refuse_left() const;
  void end_calls(const char* why);
  /// Returns the GPU whose current stream a barrier waits for, if the program has named or used
  /// one.
  std::optional<c10::Device> gpu_of(const c10d::BarrierOptions& options);
  void check_lists(const char* what, const TensorLists& lists, const at::Tensor& like) const;

  const int process_;  // the process that made this object; a forked child must not use it
  std::atomic<std::chrono::milliseconds> timeout_;
  const std::shared_ptr<Completions> completions_ = std::make_shared<Completions>();

  std::mutex calls_;  // held while a call is made, and while a blocking one runs
  std::mutex communicator_mutex_;
  std::optional<Communicator> communicator_;  // empty after shutdown(); changed under both mutexes
  std::unique_ptr<SparseSums> sparse_;        // null until it is needed; changed under both mutexes
  std::unique_ptr<Group> group_;  // set between startCoalescing() and endCoalescing(); under calls_
  std::vector<WorkPtr> coalesced_;  // guarded by calls_
  Streams streams_;
  std::atomic<std::uint64_t> number_{0};

  std::mutex under_way_mutex_;
  std::condition_variable none_under_way_;
  int under_way_ = 0;  // guarded by under_way_mutex_
};

}  // namespace tutti::pytorch
