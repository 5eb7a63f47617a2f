// Declares the fixture of tests that launch kernels by themselves.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "gpu.h"

namespace tutti::device {

inline constexpr std::uint32_t kThreads = 32;

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string missing;
    gpu_ = Gpu::get(missing);
    if (gpu_ == nullptr) GTEST_SKIP() << missing;
  }
  Gpu* gpu_ = nullptr;
};

}  // namespace tutti::device
