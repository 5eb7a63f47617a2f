// A GPU as a test program uses it, by functions of the driver.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

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

/// Returns how many GPUs the driver shows.
inline int gpu_count() {
  int count = 0;
  cu("cuInit", 0u);
  cu("cuDeviceGetCount", &count);
  return count;
}

/// Returns how many allocations of GPUs, own and mapped, and of pinned memory this process has: the
/// stand-in has a file for each.
inline std::size_t allocations() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (target.string().find("cuda stand-in") != std::string::npos) ++count;
  }
  return count;
}

/// Waits until the stand-in has freed what graphs had that have ended: it does so in threads.
inline void await_freed_graphs() {
  const auto any = [] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::ifstream(entry.path() / "comm") >> name;
      if (name == "frees-graph") return true;
    }
    return false;
  };
  while (any()) std::this_thread::yield();
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

inline std::uint64_t address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

/// Memory of the current GPU, which the host reads and writes by copies alone.
template <typename T>
class GpuBuffer {
 public:
  explicit GpuBuffer(std::size_t count, T value = {}) : count_(count) {
    cu("cuMemAlloc_v2", &address_, count * sizeof(T) + 1);
    fill(value);
  }
  ~GpuBuffer() { cu("cuMemFree_v2", address_); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  T* data() const { return reinterpret_cast<T*>(address_); }
  std::size_t size() const { return count_; }

  void write(const std::vector<T>& values) const {
    if (!values.empty())
      cu("cuMemcpyHtoD_v2", address_, static_cast<const void*>(values.data()),
         values.size() * sizeof(T));
  }
  void fill(T value) const { write(std::vector<T>(count_, value)); }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    if (count_ != 0)
      cu("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), address_, count_ * sizeof(T));
    return values;
  }

 private:
  std::uint64_t address_ = 0;
  std::size_t count_;
};

/// Pinned memory of the host, for copies in the order of a stream.
template <typename T>
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t count, T value = {}) : count_(count) {
    cu("cuMemHostAlloc", &memory_, count * sizeof(T), 0u);
    std::fill(view().begin(), view().end(), value);
  }
  ~PinnedBuffer() { cu("cuMemFreeHost", memory_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::span<T> view() const { return {static_cast<T*>(memory_), count_}; }

 private:
  void* memory_ = nullptr;
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
  /// Adds work of the host to the stream, which must not call the driver.
  void run(std::function<void()> work) const {
    void (*call)(void*) = [](void* argument) {
      const auto owned = static_cast<std::function<void()>*>(argument);
      (*owned)();
      delete owned;
    };
    cu("cuLaunchHostFunc", handle_, call,
       static_cast<void*>(new std::function<void()>(std::move(work))));
  }
  /// Adds a copy between two places, each in a GPU's or in pinned memory.
  void copy(void* to, const void* from, std::size_t bytes) const {
    cu("cuMemcpyAsync", address_of(to), address_of(from), bytes, handle_);
  }
  void synchronize() const { cu("cuStreamSynchronize", handle_); }

 private:
  void* handle_ = nullptr;
};

/// A stream that continues a capture, or waits for another stream.
inline void follow(const GpuStream& stream, const GpuStream& before) {
  void* event = nullptr;
  cu("cuEventCreate", &event, 2u);
  cu("cuEventRecord", event, before.handle());
  cu("cuStreamWaitEvent", stream.handle(), event, 0u);
  cu("cuEventDestroy_v2", event);
}

/// A CUDA graph of what a stream is given while it is captured.
class GpuGraph {
 public:
  enum Mode { global = 0, of_thread = 1, relaxed = 2 };

  GpuGraph() = default;
  /// Captures what `body` gives to the stream.
  GpuGraph(const GpuStream& stream, const std::function<void()>& body, Mode mode = of_thread) {
    cu("cuStreamBeginCapture_v2", stream.handle(), static_cast<unsigned>(mode));
    try {
      body();
    } catch (...) {
      void* graph = nullptr;
      cu("cuStreamEndCapture", stream.handle(), &graph);
      cu("cuGraphDestroy", graph);
      throw;
    }
    cu("cuStreamEndCapture", stream.handle(), &graph_);
    cu("cuGraphInstantiateWithFlags", &exec_, graph_, 0ULL);
  }
  GpuGraph(GpuGraph&& other) noexcept
      : graph_(std::exchange(other.graph_, nullptr)), exec_(std::exchange(other.exec_, nullptr)) {}
  GpuGraph& operator=(GpuGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    std::swap(exec_, other.exec_);
    return *this;
  }
  ~GpuGraph() {
    if (graph_ != nullptr) cu("cuGraphDestroy", graph_);
    if (exec_ != nullptr) cu("cuGraphExecDestroy", exec_);
  }

  void launch(const GpuStream& stream) const { cu("cuGraphLaunch", exec_, stream.handle()); }
  std::size_t nodes() const {
    std::size_t count = 0;
    cu("cuGraphGetNodes", graph_, static_cast<void*>(nullptr), &count);
    return count;
  }
  void* handle() const { return graph_; }

 private:
  void* graph_ = nullptr;
  void* exec_ = nullptr;
};

}  // namespace tutti::test
