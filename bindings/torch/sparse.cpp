#include "sparse.h"

#include <numeric>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>

#include "tensors.h"
#include "work.h"

namespace tutti::pytorch {
namespace {

// Gathers the rows of all ranks, in the order of ranks.
at::Tensor gathered(Communicator& comm, const at::Tensor& own,
                    const std::vector<std::int64_t>& entries, const CallOptions& options) {
  std::vector<std::int64_t> shape = own.sizes().vec();
  shape[0] = std::accumulate(entries.begin(), entries.end(), std::int64_t{0});
  at::Tensor joined = at::empty(shape, own.options());
  const Elements whole = elements(joined);
  const std::size_t row = shape[0] > 0 ? whole.count / static_cast<std::size_t>(shape[0]) : 0;
  std::vector<std::size_t> counts;
  for (const std::int64_t each : entries) counts.push_back(static_cast<std::size_t>(each) * row);
  comm.all_gatherv(own.data_ptr(), joined.data_ptr(), counts, {}, whole.type, options);
  return joined;
}

// Sends each rank's entries to all ranks, and each adds them up, since ranks have different
// entries.
at::Tensor sum_of(Communicator& comm, const at::Tensor& tensor, const CallOptions& options) {
  const at::Tensor input = tensor.coalesce();
  const at::Tensor indices = input.indices().t().contiguous();  // one row for each entry
  const at::Tensor values = input.values().contiguous();
  const std::int64_t own = values.size(0);
  std::vector<std::int64_t> entries(static_cast<std::size_t>(comm.size()));
  comm.all_gather(&own, entries.data(), 1, DataType::int64, options);
  const at::Tensor all_indices = gathered(comm, indices, entries, options);
  const at::Tensor all_values = gathered(comm, values, entries, options);
  return at::sparse_coo_tensor(all_indices.t(), all_values, input.sizes()).coalesce();
}

class SparseWork final : public c10d::Work {
 public:
  SparseWork(int rank, const at::Tensor& tensor, std::uint64_t number)
      : c10d::Work(rank, c10d::OpType::_ALLREDUCE_SPARSE, "tutti:sparse_all_reduce",
                   std::vector<at::Tensor>{tensor}),
        number_(number),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {}

  void end(at::Tensor sum, std::exception_ptr error) {
    if (sum.defined()) result_ = {std::move(sum)};
    if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
    finish(std::move(error));
  }
  void complete_future() {
    if (const auto error = exception())
      future_->setError(error);
    else
      future_->markCompleted(c10::IValue(result_));
  }

  std::vector<at::Tensor> result() override { return result_; }
  std::uint64_t getSequencenumber() const override { return number_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  bool wait(std::chrono::milliseconds timeout) override {
    using Clock = std::chrono::steady_clock;
    const auto limit = timeout <= kNoTimeout ? Clock::time_point::max() : Clock::now() + timeout;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        const auto until = std::min(limit, Clock::now() + kBetweenSignals);
        if (cv_.wait_until(lock, until, [this] { return completed_; })) break;
      }
      if (interrupted()) raise_interruption();
      if (Clock::now() >= limit)
        rethrow(Error(ErrorKind::timeout, "the sum of sparse tensors had not ended; it goes on"));
    }
    if (const auto error = exception()) std::rethrow_exception(error);
    return true;
  }

 private:
  const std::uint64_t number_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::vector<at::Tensor> result_;  // written before the future is completed
};

std::exception_ptr summed(Communicator& comm, const at::Tensor& tensor, at::Tensor& sum,
                          const CallOptions& options) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;  // as in Work::end()
  try {
    try {
      sum = sum_of(comm, tensor, options);
      at::Tensor(tensor).copy_(sum);
    } catch (const Error& error) {
      rethrow(error);
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

c10::intrusive_ptr<c10d::Work> SparseSums::start(const at::Tensor& tensor,
                                                 std::chrono::milliseconds timeout,
                                                 std::uint64_t number,
                                                 std::shared_ptr<Completions> completions,
                                                 std::function<void()> ended) {
  auto work = c10::make_intrusive<SparseWork>(communicator_->rank(), tensor, number);
  const std::size_t level = completions->level();
  tasks_.run(0, [=, communicator = communicator_] {
    at::Tensor sum;
    auto error = summed(*communicator, tensor, sum, {.timeout = timeout});
    work->end(std::move(sum), std::move(error));
    completions->run(level, [work] { work->complete_future(); });
    ended();
  });
  return work;
}

}  // namespace tutti::pytorch
