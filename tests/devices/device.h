// GPU memory and streams of the stand-in for the CUDA driver, for tests.
#pragma once

#include <dlfcn.h>

#include <cassert>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>

namespace tutti::test {

/// Returns a function of the stand-in, which the first call loads, as a program loads its driver.
template <typename Function>
Function* stand_in(const char* name) {
  static void* const library = dlopen(std::getenv("TUTTI_TEST_CUDA"), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// Memory of a GPU: data() is what a program has of it, which the host cannot touch; view() is the
/// same memory for the test and its kernels.
template <typename T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t count, T value = {})
      : memory_(stand_in<void*(std::size_t)>("standInAllocate")(count * sizeof(T) + 1)),
        count_(count) {
    for (T& each : view()) each = value;
  }
  ~DeviceBuffer() { stand_in<void(void*)>("standInFree")(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return static_cast<T*>(memory_); }
  std::span<T> view() const {
    return {static_cast<T*>(stand_in<void*(void*)>("standInTouch")(memory_)), count_};
  }

 private:
  void* memory_;
  std::size_t count_;
};

class DeviceStream {
 public:
  DeviceStream() : handle_(stand_in<void*()>("standInStream")()) {}
  ~DeviceStream() { stand_in<void(void*)>("standInDestroyStream")(handle_); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  void* handle() const { return handle_; }
  /// Adds a kernel, which is a function of the test.
  void launch(const std::function<void()>& kernel) const {
    stand_in<void(void*, const std::function<void()>*)>("standInLaunch")(handle_, &kernel);
  }
  void synchronize() const { stand_in<void(void*)>("standInSynchronize")(handle_); }
  void capture(bool on) const { stand_in<void(void*, bool)>("standInCapture")(handle_, on); }

 private:
  void* handle_;
};

/// Has the driver's function `name` fail once, after `before` calls that succeed.
inline void refuse_once(const char* name, int before = 0) {
  stand_in<void(const char*, int)>("standInRefuse")(name, before);
}
/// Has the next `times` allocations of pinned memory fail.
inline void refuse_memory(int times) { stand_in<void(int)>("standInRefuseMemory")(times); }
inline int pinned_blocks() { return stand_in<int()>("standInPinned")(); }

}  // namespace tutti::test
