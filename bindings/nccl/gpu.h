// Finds those functions of the CUDA driver that NCCL's functions need and the library does not
// offer: the thread's device, whose memory an address is, memory for ncclMemAlloc, and copies.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "bindings/nccl/abi.h"

namespace tutti::nccl {

/// The functions of the driver that this process has loaded. Any thread may use it.
class Gpu {
 public:
  /// Returns null if the program has not loaded the driver, or if there is no GPU. It looks again
  /// at each call until it finds one.
  static const Gpu* find();

  int count() const;
  /// The device that calls of this thread are for: that of the current context, else what the CUDA
  /// runtime of the process says, else 0.
  int current_device() const;
  /// Returns whether `address` is memory of a GPU, or managed memory.
  bool owns(const void* address) const;
  /// Returns whether the driver knows the memory: a GPU's, or the host's that is pinned.
  bool knows(const void* address) const;

  /// These throw ncclUnhandledCudaError, which names the function of the driver and its result.
  void* allocate(std::size_t bytes) const;
  /// Frees memory of allocate(), whatever context is the thread's. Throws ncclInvalidArgument for
  /// other memory.
  void free(void* memory) const;
  /// Copies in the order of the stream, which belongs to `device`.
  void copy(void* to, const void* from, std::size_t bytes, int device, cudaStream_t stream) const;
  /// Copies to the host once the stream has come to the call.
  void read(void* to, const void* from, std::size_t bytes, int device, cudaStream_t stream) const;

 private:
  friend class WithContext;
  struct Functions;
  class Entered;
  explicit Gpu(const Functions& functions) : functions_(functions) {}

  const Functions& functions_;
};

/// While an object of this class exists, the thread has a current context: its own, or else the
/// primary one of `device`. Nothing happens if `gpu` is null. Throws ncclUnhandledCudaError.
class WithContext {
 public:
  WithContext(const Gpu* gpu, int device);
  ~WithContext();
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;

 private:
  std::unique_ptr<Gpu::Entered> entered_;
};

}  // namespace tutti::nccl
