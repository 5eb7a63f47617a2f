// Makes the streams of GPUs on which a process group's calls run, beside those of the program. It
// uses torch's interface for devices of any kind, and so needs nothing of CUDA's: what is built for
// torch on CPUs works with the same version for GPUs.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace tutti::pytorch {

/// Calls of one lane run one after the other. A receive that waits for its message holds up neither
/// sends nor collectives. `joins` only waits for calls of several lanes.
enum class Lane { collectives, sends, receives, joins };

/// Makes the streams of one process group when they are needed. Thread-safe.
class Streams {
 public:
  c10::Stream of(c10::Device device, Lane lane);
  /// Returns the device on which the first call ran, if there was one.
  std::optional<c10::Device> first_device();

 private:
  struct Made {
    c10::Device device;
    Lane lane;
    c10::Stream stream;
  };
  std::mutex mutex_;
  std::vector<Made> made_;  // guarded by mutex_
};

/// Returns the stream on which the calling thread works on this device.
c10::Stream current_stream(c10::Device device);
/// Returns the device with its index, which is that of the current one if it has none.
c10::Device indexed(c10::Device device);
void* handle_of(const c10::Stream& stream);
/// Returns whether what the stream is given becomes a part of a CUDA graph.
bool is_captured(const c10::Stream& stream);

/// Returns an event that happens when `stream` has done what it has been given.
c10::Event event_of(const c10::Stream& stream);
/// Lets `later` wait for what `earlier` has been given.
void wait_for(const c10::Stream& later, const c10::Stream& earlier);
/// Keeps the tensor's memory from other uses until `stream` has done what it has been given, even
/// if the tensor is freed.
void keep_for(const c10::Stream& stream, const at::Tensor& tensor);

/// Returns whether tensors lie on a GPU, and not one behind the other. The memory between them is
/// none of the call's, and the host would copy it.
bool lie_apart(const std::vector<at::Tensor>& tensors);
/// Returns new tensors of these shapes, which lie one behind the other.
std::vector<at::Tensor> in_one_piece(const std::vector<at::Tensor>& tensors);

}  // namespace tutti::pytorch
