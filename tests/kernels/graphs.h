// Ranks with a GPU each whose calls are captured into CUDA graphs, by kernels and by the host's
// way.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include <tutti/tutti.hpp>

#include "tests/kernels/gpu_buffers.h"
#include "tests/kernels/lines.h"
#include "tests/runtime/threads.h"

namespace tutti::test {

inline constexpr DataType kInt = DataType::int32;
inline constexpr std::size_t kCount = 3000;

struct GraphSetting {
  const char* name;
  const char* transports;
  const char* device;  // "none": the host moves the bytes
};

class Graphs : public testing::TestWithParam<GraphSetting> {
 protected:
  Config config() {
    Config config = quick_config(GetParam().transports);
    config.device = GetParam().device;
    config.log_level = LogLevel::warn;
    config.log_sink = lines_.sink();
    return config;
  }
  static bool by_kernels() { return GetParam().device != std::string("none"); }
  /// Runs ranks of which each has a current GPU.
  Outcomes run(int size, const Config& config, const std::function<void(Communicator&)>& body) {
    return run_ranks(size, config, [&](Communicator& comm) {
      const int ordinal = comm.device() >= 0 ? comm.device() : comm.rank() % gpu_count();
      const GpuContext context(ordinal);
      body(comm);
    });
  }

  Lines lines_;
};

}  // namespace tutti::test
