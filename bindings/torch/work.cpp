#include "work.h"

#include <torch/csrc/utils/pybind.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <c10/util/Exception.h>

namespace tutti::pytorch {
namespace {

std::exception_ptr as_exception(const Error& error) {
  try {
    rethrow(error);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

void rethrow(const Error& error) {
  if (error.kind() == ErrorKind::usage) C10_THROW_ERROR(ValueError, error.what());
  C10_THROW_ERROR(DistBackendError,
                  c10::str("tutti ", to_string(error.kind()), " error: ", error.what()));
}

bool interrupted() noexcept {
  if (Py_IsInitialized() == 0) return false;
  const pybind11::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;  // the exception stays with this thread
}

void raise_interruption() {
  if (Py_IsInitialized() == 0) return;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_Occurred() != nullptr) throw pybind11::error_already_set();
}

Work::Work(int rank, c10d::OpType what, const char* title, const std::vector<at::Tensor>& inputs,
           std::shared_ptr<Completions> completions, std::uint64_t number)
    : c10d::Work(rank, what, title, inputs),
      title_(title),
      completions_(std::move(completions)),
      number_(number) {}

void Work::stand_on(const at::Tensor& tensor) {
  if (!device_) device_ = tensor.device();
  TORCH_CHECK_VALUE(tensor.device() == *device_, title_,
                    ": the tensors of a call are on one device, and these are on ", *device_,
                    " and ", tensor.device());
}

at::Tensor Work::input(const at::Tensor& tensor) {
  stand_on(tensor);
  held_.push_back(tensor.contiguous());
  return held_.back();
}

at::Tensor Work::output(const at::Tensor& tensor, bool reads) {
  stand_on(tensor);
  if (tensor.is_contiguous()) {
    held_.push_back(tensor);
    return tensor;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;  // autograd would keep the copy
  const at::Tensor piece =
      reads ? tensor.contiguous() : at::empty_like(tensor, at::MemoryFormat::Contiguous);
  copies_.emplace_back(tensor, piece);
  return piece;
}

void Work::give(std::vector<std::vector<at::Tensor>> result) {
  nested_ = c10::IValue(result);
  if (!result.empty()) result_ = std::move(result.front());
}

void Work::started(tutti::Work handle, std::vector<c10::intrusive_ptr<Work>> parts,
                   std::function<void()> ended) {
  handle_ = std::move(handle);
  for (const auto& part : parts) part->handle_ = handle_;
  auto self = c10::intrusive_ptr<Work>::reclaim_copy(this);
  tutti::Work(handle_).then([self = std::move(self), parts = std::move(parts),
                             ended = std::move(ended)](const Error* error) {
    self->end(error);
    for (const auto& part : parts) {
      part->end(error);
      if (part->error_ && !self->error_) self->error_ = part->error_;
    }
    ended();
  });
}

template <typename Step>
void Work::attempt(const char* failed, Step&& step) noexcept {
  std::string why = "an exception of an unknown type";
  try {
    return step();
  } catch (const c10::Error& thrown) {
    why = thrown.what_without_backtrace();
  } catch (const std::exception& thrown) {
    why = thrown.what();
  } catch (...) {
  }
  if (!error_)
    error_.emplace(ErrorKind::internal,
                   c10::str("rank ", rank_, ": ", title_, " ended well, but ", failed, ": ", why));
}

// Results are copied back below autograd, like the results that a call writes in place: autograd
// refuses to write to a parameter, which is a leaf variable, and to a tensor of inference mode.
void Work::end(const Error* error) noexcept {
  if (error != nullptr) error_ = *error;
  if (!error_)
    attempt("its result cannot be copied to the tensor that it was called with", [this] {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      for (const auto& [tensor, piece] : copies_) tensor.copy_(piece);
    });
  copies_.clear();
  held_.clear();
  if (recordFunctionEndCallback_)
    attempt("the profiler's callback failed", std::exchange(recordFunctionEndCallback_, nullptr));
}

std::exception_ptr Work::exception() const {
  return handle_.done() && error_ ? as_exception(*error_) : nullptr;
}

void Work::await_host(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const bool endless = timeout <= kNoTimeout;
  const auto limit = endless ? Clock::time_point::max() : Clock::now() + timeout;
  while (!handle_.done()) {
    const auto rest = endless ? kBetweenSignals
                              : std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
    try {
      handle_.wait(std::min(std::max(rest, std::chrono::milliseconds{0}), kBetweenSignals));
    } catch (const Error& error) {
      if (handle_.done()) break;
      if (error.kind() != ErrorKind::timeout) rethrow(error);
      if (interrupted()) raise_interruption();
      if (Clock::now() >= limit) rethrow(Error(ErrorKind::timeout, error.what()));
    }
  }
  if (error_) rethrow(*error_);
}

bool Work::wait(std::chrono::milliseconds timeout) {
  const bool on_stream = !left_.empty() && !for_host_ && timeout <= kNoTimeout;
  if (!on_stream) await_host(timeout);
  if (on_stream && handle_.done() && error_) rethrow(*error_);
  synchronize();
  return true;
}

template <typename Value>
c10::intrusive_ptr<c10::ivalue::Future> Work::future_of(c10::TypePtr type, bool fails,
                                                        Value value) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(std::move(type));
  const bool done = handle_.done();
  auto complete = [future, fails, value, self = c10::intrusive_ptr<Work>::reclaim_copy(this)] {
    if (self->error_ && fails)
      future->setError(as_exception(*self->error_));
    else
      future->markCompleted(value(*self));
  };
  if (done)
    complete();
  else
    handle_.then([complete, level = completions_->level(),
                  completions = completions_](const Error*) { completions->run(level, complete); });
  return future;
}

c10::IValue Work::value() const { return nested_.isNone() ? c10::IValue(result_) : nested_; }

c10::TypePtr Work::type_of_value() const {
  const auto tensors = c10::ListType::create(c10::TensorType::get());
  if (nested_.isNone()) return tensors;
  return c10::ListType::create(tensors);
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (!future_)
    future_ = future_of(type_of_value(), true, [](const Work& work) { return work.value(); });
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult() {
  return future_of(c10::IntType::get(), false, [](const Work& work) {
    using c10d::WorkResult;
    const bool late = work.error_ && work.error_->kind() == ErrorKind::timeout;
    const WorkResult result = !work.error_ ? WorkResult::SUCCESS
                              : late       ? WorkResult::TIMEOUT
                                           : WorkResult::COMM_ERROR;
    return c10::IValue(static_cast<std::int64_t>(result));
  });
}

}  // namespace tutti::pytorch
