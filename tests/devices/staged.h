// Ranks with GPU buffers over each transport, on the stand-in for the driver.
#pragma once

#include <gtest/gtest.h>

#include "tests/devices/device.h"
#include "tests/runtime/threads.h"

namespace tutti::test {

inline constexpr std::size_t kCount = 1000;

class Staged : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { pinned_blocks(); }  // loads the driver, as a program does first
  static Config config() { return quick_config(GetParam()); }
};

}  // namespace tutti::test
