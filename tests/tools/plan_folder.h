// Files for tests of tutti-plan.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/topology/topology_files.h"

namespace tutti::tools {

/// Makes a folder with a topology of three GPUs, which goes with the test.
class PlanFolder : public testing::Test {
 protected:
  PlanFolder() {
    std::string name = testing::TempDir() + "plan_XXXXXX";
    folder_ = mkdtemp(name.data());
    node_ = write("node.xml", kSmallTopology);
  }
  ~PlanFolder() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
  std::string node_;
};

}  // namespace tutti::tools
