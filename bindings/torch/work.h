// A call of tutti as torch's Work.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <tutti/error.hpp>
#include <tutti/options.hpp>
#include <tutti/work.hpp>

#include "completions.h"
#include "streams.h"

namespace tutti::pytorch {

/// Throws tutti's error as torch's: ValueError for `usage`, DistBackendError for every other kind.
[[noreturn]] void rethrow(const Error& error);

/// Interval at which a thread that waits checks for Ctrl-C.
inline constexpr std::chrono::milliseconds kBetweenSignals{100};

/// Returns whether Python has an exception to raise in this thread, for example because of Ctrl-C,
/// as tutti::Interruptible asks. raise_interruption() then throws it.
bool interrupted() noexcept;
void raise_interruption();

/// A call of torch. It holds the tensors until the call has ended, even if torch has dropped it.
/// Thread-safe once it has been started.
///
/// A call on tensors of a GPU runs on a stream of the process group, behind what is on the current
/// stream at the time of the call. Its future is completed at once, and wait() without a time-out
/// returns at once: the current stream waits, and the host goes on.
///
/// A call on a stream that is captured becomes a part of a CUDA graph. It is done at once, for the
/// host, and nothing that a capture forbids is asked about it: no event is queried, and no thread
/// waits.
class Work final : public c10d::Work {
 public:
  Work(int rank, c10d::OpType what, const char* title, const std::vector<at::Tensor>& inputs,
       std::shared_ptr<Completions> completions, std::uint64_t number);

  // --- Called before the call starts ---
  // All tensors of a call are on one device; otherwise they throw ValueError.
  /// Returns `tensor`, or a contiguous copy of it, to be read.
  at::Tensor input(const at::Tensor& tensor);
  /// Returns contiguous memory to be written: `tensor` itself, or a tensor that is copied to it
  /// when the call has ended. `reads` says that the call reads it as well.
  at::Tensor output(const at::Tensor& tensor, bool reads);
  /// Does the same for tensors that are blocks of one buffer: on a GPU, they lie one behind the
  /// other.
  std::vector<at::Tensor> inputs(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> outputs(const std::vector<at::Tensor>& tensors);
  /// Says that the program learns something of the call on the host, so that wait() blocks the
  /// host.
  void wait_on_host() { for_host_ = true; }
  /// Says that a call without tensors is ordered by the current stream of this device, and that
  /// wait() blocks the host.
  void meet_on(c10::Device device);
  /// Sets the value of result() and of the future.
  void give(std::vector<at::Tensor> result) { result_ = std::move(result); }
  void give(std::vector<std::vector<at::Tensor>> result);
  Received& received() noexcept { return received_; }

  // --- Called for calls on a GPU ---
  /// Returns the GPU, or nothing if the call is on the host.
  std::optional<c10::Device> gpu() const;
  /// Lets `stream`, on which the call is to run, wait for the current stream.
  void enter(const c10::Stream& stream);
  /// Says that `stream` has been given the call: gives it the copies of results, and completes the
  /// future. started() comes next.
  void leave();
  /// Does the latter for the whole that `parts` are of, once all of them have left.
  void leave(const std::vector<c10::intrusive_ptr<Work>>& parts, Streams& streams);

  /// Says that the call is under way, and that `parts` belong to it. `ended` is called once they
  /// have ended, well or not, in any thread.
  void started(tutti::Work handle, std::vector<c10::intrusive_ptr<Work>> parts,
               std::function<void()> ended);

  bool isCompleted() override;
  bool isSuccess() const override { return handle_.done() && !error_; }
  std::exception_ptr exception() const override;
  int sourceRank() const override { return received_.source; }
  std::vector<at::Tensor> result() override { return result_; }
  void synchronize() override;
  void blockCurrentStream() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return number_; }

 private:
  void block_current_stream();
  void stand_on(const at::Tensor& tensor);
  void complete_future(const c10::Stream& stream);
  void await_host(std::chrono::milliseconds timeout);
  c10::IValue value() const;
  c10::TypePtr type_of_value() const;
  /// Called before the handle is done, in any thread.
  void end(const Error* error) noexcept;
  /// Runs `step`, one part of the end. An exception becomes the call's error, unless it has one
  /// already.
  template <typename Step>
  void attempt(const char* failed, Step&& step) noexcept;

  /// Returns a future of `type` that is completed with value(), or with the call's error if `fails`
  /// is set.
  template <typename Value>
  c10::intrusive_ptr<c10::ivalue::Future> future_of(c10::TypePtr type, bool fails, Value value);

  const char* const title_;
  const std::shared_ptr<Completions> completions_;
  const std::uint64_t number_;
  tutti::Work handle_;
  std::optional<c10::Device> device_;  // of the tensors; written before the call starts
  std::optional<c10::Stream> stream_;  // the one of a call on a GPU; written before it starts
  std::vector<c10::Event> left_;       // what the results wait for; written before it starts
  bool captured_ = false;              // whether a graph has the call; written before it starts
  bool copied_ = false;    // whether the stream copies results behind the call, of which handle_
                           // knows nothing; written before it starts
  bool for_host_ = false;  // whether wait() blocks the host, unless a graph has the call
  std::vector<at::Tensor> held_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // destination and source
  std::vector<at::Tensor> result_;
  c10::IValue nested_;  // the future's value if it is not a list of tensors
  Received received_;
  std::optional<Error> error_;  // written before handle_ is done
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by future_mutex_
};

}  // namespace tutti::pytorch
