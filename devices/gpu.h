// The GPUs of this process: whose memory an address is in, and how work is given to a stream.
#pragma once

#include <memory>

#include "devices/gpu_driver.h"

namespace tutti {

/// Knows the CUDA driver once the program has loaded it. One thread at a time uses it.
class Gpu {
 public:
  Gpu() { look(); }

  /// Looks for the driver, if it is not known and libraries were loaded since the last look. Takes
  /// the lock of the dynamic linker, so it is no part of the path of a call that repeats.
  void look();
  /// Returns the driver, or null if no look has found it.
  const cuda::Driver* driver() const noexcept { return driver_.get(); }

  /// Returns whether `address` lies in a GPU's memory, as far as the driver is known. Managed
  /// memory counts as such.
  bool holds(const void* address) const {
    return driver_ != nullptr && in_memory(*driver_, address);
  }

 private:
  static bool in_memory(const cuda::Driver& driver, const void* address);

  std::unique_ptr<const cuda::Driver> driver_;
  unsigned long long libraries_ = 0;  // The number of libraries loaded when it was last looked for.
};

/// While an object of this class exists, this thread may call functions of the driver that no
/// capture records, such as allocations, although the program captures a stream: in this thread, or
/// in another one in the mode `global`.
class OutsideCapture {
 public:
  explicit OutsideCapture(const cuda::Driver& driver) : driver_(driver) {
    driver_.exchange_capture_mode(&mode_);
  }
  ~OutsideCapture() { driver_.exchange_capture_mode(&mode_); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  const cuda::Driver& driver_;
  int mode_ = cuda::kCaptureModeRelaxed;
};

/// While an object of this class exists, the context of a stream is the current one of this thread.
class StreamContext {
 public:
  /// `address` lies in the GPU's memory and names the context where `stream` is a default stream;
  /// if it is null, that is the thread's current one. Throws `unavailable` if there is none.
  StreamContext(const cuda::Driver& driver, cuda::Stream stream, const void* address);
  /// `context` is the stream's.
  StreamContext(const cuda::Driver& driver, cuda::Context context);
  ~StreamContext();
  StreamContext(const StreamContext&) = delete;
  StreamContext& operator=(const StreamContext&) = delete;

  cuda::Context handle() const noexcept { return context_; }

 private:
  const cuda::Driver& driver_;
  cuda::Context context_ = nullptr;
  cuda::Device retained_ = -1;  // The device whose primary context was retained, or -1.
};

}  // namespace tutti
