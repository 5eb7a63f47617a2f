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
#include "work.h"

namespace tutti::pytorch {

inline constexpr const char* kName = "tutti";

/// On what terms torch has made a call.
struct Terms {
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool async = true;
  const void* factor = nullptr;  ///< Of a premultiplied sum.
  Received* received = nullptr;
};

/// Makes a call with these options, asynchronous or not, and returns its handle where it is.
using CallFunction = c10::function_ref<tutti::Work(Communicator&, const CallOptions&, bool async)>;

/// One group's part on this rank: a communicator of its own. Tensors are in the host's memory,
/// strided, and need not be contiguous (such are copied). Calls may come from several threads;
/// those that block (async_op=False) run in the calling thread.
///
/// What differs between torch's versions is written without `override`: it overrides where the base
/// class has it.
class Backend final : public c10d::Backend {
 public:
  using Handle = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  /// Blocks until all ranks of the group are there.
  Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
          std::chrono::milliseconds timeout);
  ~Backend() override;

  const std::string getBackendName() const override { return kName; }
  virtual bool supportsSplitting() const { return true; }
  virtual bool supportsCoalescing() const { return true; }
  virtual c10::intrusive_ptr<Options> getBackendOptions();
  virtual void setTimeout(std::chrono::milliseconds timeout);
  virtual c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::vector<int>& ranks,
                                                  const c10::intrusive_ptr<Options>& options);
  virtual c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const c10::intrusive_ptr<Options>& options,
                                                  const int& rank, const int& size);

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

  /// What is called between them is made together, by endCoalescing().
  virtual void startCoalescing();
  virtual Handle endCoalescing();

  /// What DistributedDataParallel asks for its buckets: memory of a tutti::Buffer, which
  /// collectives on it do not copy into messages; ordinary memory where there is none of it. May
  /// outlive this.
  virtual bool supportsTensorAlloc(c10::DeviceIndex device) { return device < 0; }  // of the host
  virtual at::Tensor allocateTensor(long size, at::TensorOptions options);

  void setSequenceNumberForGroup() override {}  // every rank counts alike
  std::uint64_t getSequenceNumberForGroup() override { return number_; }
  virtual c10d::ErrorType getError();

  /// Ends everything that is under way, here and on the peers, with an error.
  virtual void abort() { end_calls("its process group was aborted"); }
  /// Gives what is under way five seconds, then aborts it, and leaves.
  virtual void shutdown();

 private:
  using WorkPtr = c10::intrusive_ptr<Work>;

  /// `title` and `inputs` are what profilers are told.
  WorkPtr work(c10d::OpType what, const char* title, const Tensors& inputs);
  Handle issue(WorkPtr work, const Terms& terms, CallFunction call);
  void start_together(std::vector<WorkPtr> parts, const WorkPtr& whole, tutti::Work handle);
  void begins();  // a call is under way
  void ends();
  std::chrono::milliseconds timeout_of(const Terms& terms) const;
  [[noreturn]] void refuse_left() const;
  void end_calls(const char* why);
  void check_lists(const char* what, const TensorLists& lists, const at::Tensor& like) const;

  const int process_;  // that made it: a forked child has no part in it
  std::atomic<std::chrono::milliseconds> timeout_;
  const std::shared_ptr<Completions> completions_ = std::make_shared<Completions>();

  std::mutex calls_;  // held while a call is made, and while a blocking one runs
  std::mutex communicator_mutex_;
  std::optional<Communicator> communicator_;  // none: left; changed under both mutexes
  std::unique_ptr<SparseSums> sparse_;        // null: none yet; changed under both mutexes
  std::unique_ptr<Group> group_;    // between startCoalescing() and endCoalescing(); under calls_
  std::vector<WorkPtr> coalesced_;  // guarded by calls_
  std::atomic<std::uint64_t> number_{0};

  std::mutex under_way_mutex_;
  std::condition_variable none_under_way_;
  int under_way_ = 0;  // guarded by under_way_mutex_
};

}  // namespace tutti::pytorch
