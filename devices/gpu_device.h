// One GPU as a rank uses it to run kernels: its context, its kernels, and memory that is kept from
// one use to the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "common/sync.h"
#include "devices/gpu.h"
#include "devices/gpu_driver.h"

namespace tutti {

/// Host memory that GPUs of this process read and write, since it is registered with the driver.
/// The ranks of a process share it: memory is registered once, whoever asks for it. Thread-safe.
class HostPins {
 public:
  HostPins() = default;
  HostPins(const HostPins&) = delete;
  HostPins& operator=(const HostPins&) = delete;

  /// Registers whole pages that begin at `memory`, if they are not registered yet. A context is
  /// current. Throws `unavailable` where the driver refuses. Each call is undone by one of unpin().
  void pin(const cuda::KernelDriver& driver, void* memory, std::size_t bytes);
  void unpin(const cuda::KernelDriver& driver, void* memory) noexcept;

 private:
  sync::Mutex mutex_;
  std::map<void*, int> counts_;  // guarded by mutex_: how often each area is pinned
};

/// A GPU that is open, once for all communicators of the process. Memory that it hands out is kept
/// for later uses when it is given back, and freed with the last use of the GPU, because freeing
/// memory makes the driver wait for everything that is under way on the GPU. Thread-safe.
class GpuDevice {
 public:
  /// Memory of the GPU, or pinned memory of the host.
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  enum class Kind { device, pinned };

  /// Opens GPU `ordinal`, or ordinal modulo the number of GPUs if `wrap` is true, and loads
  /// `image`, which holds its kernels; returns the one that is open already, if there is one in the
  /// same context. Throws `unavailable` where there is no driver, no such GPU, or where the driver
  /// takes no kernel of the image.
  static std::shared_ptr<GpuDevice> open(int ordinal, bool wrap, std::span<const std::byte> image);
  ~GpuDevice();
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  const cuda::KernelDriver& driver() const noexcept { return *driver_; }
  cuda::Context context() const noexcept { return context_; }
  int ordinal() const noexcept { return ordinal_; }
  /// Returns the driver's number of the context, which no other context of the process ever has.
  std::uint64_t context_number() const noexcept { return context_number_; }
  /// Returns the GPU's name among all GPUs, as text: equal on two ranks that share it.
  const std::string& uuid() const noexcept { return uuid_; }
  /// Returns its address on the PCI bus as the system writes it, for example "0000:17:00.0".
  const std::string& bus() const noexcept { return bus_; }

  /// Returns the kernel of this name, while the context is current. Throws `internal` if there is
  /// none.
  cuda::Function kernel(const std::string& name) const;

  /// Returns a block of at least `bytes` bytes; fresh memory is not zeroed. The context is current.
  /// Throws `unavailable` if there is not enough memory.
  Block take(Kind kind, std::size_t bytes);
  void give_back(Kind kind, const Block& block) noexcept;
  /// Keeps the GPU open as long as the process lives, since streams of the program may still have
  /// kernels of it to launch.
  static void keep_loaded(const std::shared_ptr<GpuDevice>& gpu) noexcept;
  /// Copies to the GPU's memory on `stream`, and returns when that is done. The context is current.
  void upload(void* to, const void* from, std::size_t bytes, cuda::Stream stream) const;
  /// Copies from the GPU's memory, and returns when that is done. The context is current.
  void download(void* to, const void* from, std::size_t bytes) const;
  /// Returns where the GPU finds pinned or registered memory of the host.
  template <typename T>
  T* address_of(T* host) const {
    return static_cast<T*>(mapped(const_cast<std::remove_const_t<T>*>(host)));
  }
  std::size_t memory_bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  /// Throws `usage` if `memory` lies on another GPU, or if `stream` is none of this one.
  void check_own(const void* memory, cuda::Stream stream) const;

  /// While an object of this class exists, the GPU's context is the current one of this thread,
  /// whose calls of the driver are part of no capture.
  class Current {
   public:
    explicit Current(const GpuDevice& gpu);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const cuda::KernelDriver& driver_;
    const OutsideCapture outside_capture_;
  };

 private:
  GpuDevice(int ordinal, bool wrap);
  void load(std::span<const std::byte> image);
  std::byte* allocate(Kind kind, std::size_t bytes) const;
  void* mapped(void* host) const;
  void release() noexcept;

  const std::unique_ptr<const cuda::KernelDriver> driver_;
  int ordinal_ = 0;
  cuda::Device device_ = -1;
  cuda::Context context_ = nullptr;
  std::uint64_t context_number_ = 0;
  cuda::Module module_ = nullptr;
  std::string uuid_, bus_;
  int process_ = 0;  // a forked child has no context
  mutable sync::Mutex mutex_;
  // Both are by kind, and guarded by mutex_. unused_ has room for every block, so that giving one
  // back never allocates.
  std::array<std::size_t, 2> blocks_{};
  std::array<std::vector<Block>, 2> unused_;
  std::shared_ptr<GpuDevice> self_;  // guarded by mutex_: not null once keep_loaded() was called
  sync::Atomic<std::size_t> bytes_{0};
};

}  // namespace tutti
