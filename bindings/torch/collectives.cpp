// Collectives on one tensor for each rank.
#include "backend.h"

#include <torch/csrc/utils/pybind.h>

#include <c10/util/Exception.h>

#include "calls.h"
#include "reductions.h"
#include "tensors.h"

namespace tutti::pytorch {

Backend::Handle Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  at::Tensor& tensor = only("broadcast", tensors);
  check_output("broadcast", tensor);
  WorkPtr made = work(c10d::OpType::BROADCAST, "tutti:broadcast", tensors);
  const at::Tensor data = made->output(tensor, true);
  made->give(tensors);
  const DataType type = elements(data).type;
  const std::size_t count = count_of(data);
  const int root = static_cast<int>(options.rootRank);
  return issue(made, terms(options), TUTTI_CALL(broadcast, data.data_ptr(), count, type, root));
}

Backend::Handle Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = only("all_reduce", tensors);
  if (tensor.layout() == at::kSparse) return allreduce_sparse(tensors, options);
  check_output("all_reduce", tensor);
  WorkPtr made = work(c10d::OpType::ALLREDUCE, "tutti:all_reduce", tensors);
  const at::Tensor data = made->output(tensor, true);
  made->give(tensors);
  const Reduction how("all_reduce", options.reduceOp, data);
  return issue(
      made, terms(options, how),
      TUTTI_CALL(all_reduce, data.data_ptr(), data.data_ptr(), count_of(data), how.type, how.op));
}

Backend::Handle Backend::allreduce_coalesced(Tensors& tensors,
                                             const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced: takes at least one tensor");
  WorkPtr made = work(c10d::OpType::ALLREDUCE_COALESCED, "tutti:all_reduce", tensors);
  Tensors data;
  check_types("all_reduce_coalesced", tensors, tensors.front());
  for (const at::Tensor& each : tensors) {
    check_output("all_reduce_coalesced", each);
    data.push_back(made->output(each, true));
  }
  made->give(tensors);
  const Reduction how("all_reduce_coalesced", options.reduceOp, data.front());
  return issue(made, terms(options, how),
               TUTTI_CALLS(data.size(), all_reduce, data[k].data_ptr(), data[k].data_ptr(),
                           count_of(data[k]), how.type, how.op));
}

Backend::Handle Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::Tensor& tensor = only("reduce", tensors);
  check_output("reduce", tensor);
  WorkPtr made = work(c10d::OpType::REDUCE, "tutti:reduce", tensors);
  const int root = static_cast<int>(options.rootRank);
  const bool here = root == getRank();
  const at::Tensor data = here ? made->output(tensor, true) : made->input(tensor);
  made->give(tensors);
  const Reduction how("reduce", options.reduceOp, data);
  return issue(made, terms(options, how),
               TUTTI_CALL(reduce, data.data_ptr(), here ? data.data_ptr() : nullptr, count_of(data),
                          how.type, how.op, root));
}

// Torch's dispatcher passes device_ids, but not the device.
std::optional<c10::Device> Backend::gpu_of(const c10d::BarrierOptions& options) {
  if (!options.device_ids.empty())
    return c10::Device(at::kCUDA, static_cast<c10::DeviceIndex>(options.device_ids.front()));
  if constexpr (requires(c10d::Backend & backend) { backend.getBoundDeviceId(); })
    if (const auto bound = getBoundDeviceId(); bound && bound->is_cuda()) return bound;
  return streams_.first_device();
}

Backend::Handle Backend::barrier(const c10d::BarrierOptions& options) {
  const auto call = [](Communicator& comm, const CallOptions& told, bool async) {
    if (async) return comm.barrier_async(told);
    comm.barrier(told);
    return tutti::Work();
  };
  WorkPtr made = work(c10d::OpType::BARRIER, "tutti:barrier", {});
  if (const auto gpu = gpu_of(options)) made->meet_on(*gpu);
  return issue(made, terms(options), call);
}

// The deadline's error names the ranks that are missing; no cheaper call waits for all ranks.
void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool) {
  barrier(options)->wait(kNoTimeout);
}

// --- Sparse tensors ---

// Sparse sums have a communicator of their own. The first sum makes it, and waits for the other
// ranks to do so.
Backend::Handle Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = only("all_reduce", tensors);
  TORCH_CHECK_VALUE(tensor.layout() == at::kSparse && tensor.device().is_cpu(),
                    "all_reduce of a sparse tensor: takes COO tensors in the host's memory");
  TORCH_CHECK_VALUE(options.reduceOp == c10d::ReduceOp::SUM,
                    "all_reduce of a sparse tensor: can only sum");
  const Terms terms = pytorch::terms(options);
  Handle work;
  try {
    const std::lock_guard lock(calls_);
    if (!communicator_) refuse_left();
    TORCH_CHECK_VALUE(group_ == nullptr, "all_reduce of a sparse tensor: cannot be coalesced");
    if (sparse_ == nullptr) {
      auto made = std::make_unique<SparseSums>(communicator_->dup());
      const std::lock_guard seen(communicator_mutex_);
      sparse_ = std::move(made);
    }
    begins();
    try {
      work = sparse_->start(tensor, timeout_of(terms), ++number_, completions_, [this] { ends(); });
    } catch (...) {
      ends();
      throw;
    }
  } catch (const Error& error) {
    rethrow(error);
  }
  if (terms.async) return work;
  try {
    work->wait();
  } catch (const pybind11::error_already_set&) {  // Ctrl-C
    end_calls("a call was interrupted");
    throw;
  }
  return work;
}

}  // namespace tutti::pytorch
