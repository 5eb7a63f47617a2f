// A GPU as these tests use it: its driver is the library that TUTTI_TEST_CUDA names, opened when
// the first test runs. All memory is the host's, which kernels reach, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/engine/device/records.h"

namespace tutti::device {

class Gpu {
 public:
  /// Returns null, and says why in `missing`, where there is no driver or no kernel.
  static Gpu* get(std::string& missing);

  /// Memory of zeros, aligned to 4096 bytes.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);
  bool has_kernel(const std::string& name);

  /// A queue of launches.
  class Stream {
   public:
    explicit Stream(Gpu& gpu);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    /// Launches the kernel and waits until it has ended.
    void run(const std::string& kernel, const CallRecord& call, std::uint32_t threads);

   private:
    Gpu& gpu_;
    void* stream_ = nullptr;
  };

 private:
  struct Driver;
  explicit Gpu(std::unique_ptr<Driver> driver);
  std::unique_ptr<Driver> driver_;
};

}  // namespace tutti::device
