// Binds a program as kernels read it, with its records in the GPU's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "devices/gpu_device.h"
#include "runtime/engine/device/channel_ends.h"
#include "runtime/engine/device/records.h"
#include "runtime/engine/engine.h"

namespace tutti::device {

/// A program, all stripes of it, that the device engine has bound.
struct DeviceProgram final : BoundProgram {
  /// Copies the records to the GPU, whose context is current. Throws `unavailable`: where there is
  /// no memory, and for what no kernel does.
  DeviceProgram(std::vector<Program> stripes, std::shared_ptr<GpuDevice> gpu, Ends& ends,
                cuda::Stream stream);
  ~DeviceProgram();

  const cuda::Function kernel;
  std::uint32_t lanes = 0;
  std::uint32_t blocks = 0;
  const ProgramRecord* records = nullptr;
  Counts* counts = nullptr;
  std::uint32_t* claimed = nullptr;
  std::uint64_t runs = 0;           ///< How often a call of it was launched for the first time.
  std::uint64_t launches = 0;       ///< How often its kernel was launched at all.
  std::uint64_t scratch_bytes = 0;  ///< Of all stripes.

 private:
  void upload(const std::vector<Program>& stripes, const Ends& ends, cuda::Stream stream);

  const std::shared_ptr<GpuDevice> gpu_;
  GpuDevice::Block block_;
};

}  // namespace tutti::device
