// What tests of the stand-in use: a GPU, its memory, and launches.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tutti::stand_in::test {

inline void check(CUresult result) {
  const char* text = nullptr;
  if (result != CUDA_SUCCESS) cuGetErrorName(result, &text);
  ASSERT_EQ(result, CUDA_SUCCESS) << text;
}

/// A GPU, whose context is current in this thread, and the kernels of FAKE_CUDA_KERNELS.
class Gpu {
 public:
  explicit Gpu(int ordinal = 0) {
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context_, ordinal));
    check(cuCtxPushCurrent(context_));
    check(cuModuleLoadData(&module_, "// PTX"));
    ordinal_ = ordinal;
  }
  ~Gpu() {
    check(cuModuleUnload(module_));
    check(cuCtxPopCurrent(nullptr));
    check(cuDevicePrimaryCtxRelease(ordinal_));
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  CUcontext context() const { return context_; }
  CUfunction kernel(const std::string& name) const {
    CUfunction found = nullptr;
    check(cuModuleGetFunction(&found, module_, name.c_str()));
    return found;
  }

  struct Shape {
    unsigned blocks = 1, threads = 32, shared_bytes = 0;
    CUstream stream = nullptr;
  };
  template <typename... Arguments>
  void launch(const std::string& name, Shape shape, Arguments... arguments) const {
    void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
    check(cuLaunchKernel(kernel(name), shape.blocks, 1, 1, shape.threads, 1, 1, shape.shared_bytes,
                         shape.stream, pointers, nullptr));
  }

 private:
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  int ordinal_ = 0;
};

class Stream {
 public:
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    check(cuStreamCreate(&handle_, flags));
  }
  ~Stream() { check(cuStreamDestroy(handle_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  CUstream handle() const { return handle_; }
  void synchronize() const { check(cuStreamSynchronize(handle_)); }

 private:
  CUstream handle_ = nullptr;
};

/// Elements in a GPU's memory.
template <typename T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    check(cuMemcpyHtoD(address_, values.data(), bytes()));
  }
  explicit Array(std::size_t count) : count_(count) { check(cuMemAlloc(&address_, bytes())); }
  Array(std::size_t count, T value) : Array(std::vector<T>(count, value)) {}
  ~Array() { check(cuMemFree(address_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  CUdeviceptr address(std::size_t element = 0) const { return address_ + element * sizeof(T); }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    check(cuMemcpyDtoH(values.data(), address_, bytes()));
    return values;
  }

  /// One element, of a copy that is made at the first call.
  T get(std::size_t element) const {
    if (copy_.empty()) copy_ = get();
    return copy_[element];
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }
  const std::size_t count_;
  CUdeviceptr address_ = 0;
  mutable std::vector<T> copy_;
};

using Wide = std::uint64_t;

/// A word of pinned memory, which the host and the GPU see.
class Pinned {
 public:
  Pinned() {
    void* memory = nullptr;
    check(cuMemHostAlloc(&memory, sizeof(Wide), CU_MEMHOSTALLOC_DEVICEMAP));
    word_ = static_cast<std::atomic<Wide>*>(memory);
    *word_ = 0;
    check(cuMemHostGetDevicePointer(&address_, memory, 0));
  }
  ~Pinned() { check(cuMemFreeHost(word_)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  CUdeviceptr address() const { return address_; }
  std::atomic<Wide>& word() const { return *word_; }

 private:
  std::atomic<Wide>* word_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace tutti::stand_in::test
