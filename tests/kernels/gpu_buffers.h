// A GPU as a test program uses it: by the functions of the driver that the stand-in is.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace tutti::test {

/// Calls a function of the driver, which the first call loads. Throws where it returns an error.
template <typename... Args>
void cu(const char* name, Args... args) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("no function ") + name);
  const int result = function(args...);
  if (result != 0) throw std::runtime_error(name + (": error " + std::to_string(result)));
}

/// Makes the primary context of a GPU the current one of this thread.
class GpuContext {
 public:
  explicit GpuContext(int ordinal) : ordinal_(ordinal) {
    void* context = nullptr;
    cu("cuInit", 0u);
    cu("cuDevicePrimaryCtxRetain", &context, ordinal);
    cu("cuCtxSetCurrent", context);
  }
  ~GpuContext() { cu("cuDevicePrimaryCtxRelease_v2", ordinal_); }
  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;

 private:
  const int ordinal_;
};

/// Memory of the current GPU. The stand-in's memory can be read and written by the test, too.
template <typename T>
class GpuBuffer {
 public:
  explicit GpuBuffer(std::size_t count, T value = {}) : count_(count) {
    cu("cuMemAlloc_v2", &address_, count * sizeof(T) + 1);
    for (T& each : view()) each = value;
  }
  ~GpuBuffer() { cu("cuMemFree_v2", address_); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  T* data() const { return reinterpret_cast<T*>(address_); }
  std::span<T> view() const { return {data(), count_}; }

 private:
  std::uint64_t address_ = 0;
  std::size_t count_;
};

/// A stream of the current GPU.
class GpuStream {
 public:
  GpuStream() { cu("cuStreamCreate", &handle_, 1u); }
  ~GpuStream() { cu("cuStreamDestroy_v2", handle_); }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  void* handle() const { return handle_; }
  /// Adds work of the test to the stream.
  void run(std::function<void()> work) const {
    void (*call)(void*) = [](void* argument) {
      const auto owned = static_cast<std::function<void()>*>(argument);
      (*owned)();
      delete owned;
    };
    cu("cuLaunchHostFunc", handle_, call,
       static_cast<void*>(new std::function<void()>(std::move(work))));
  }
  void synchronize() const { cu("cuStreamSynchronize", handle_); }

 private:
  void* handle_ = nullptr;
};

}  // namespace tutti::test
