// Machines described by tests, and files like those of /sys and /proc.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "topology/discover.h"

namespace tutti {

inline Machine described(const std::string& synthetic) {
  auto machine = describe(synthetic);
  EXPECT_TRUE(machine) << synthetic;
  machine->described = false;  // The test acts as if it ran on this machine.
  return *machine;
}

/// A machine of two packages, each with two L3 caches, each of which has two cores with two
/// threads: cpus 0 to 15.
inline Machine big() { return described("pack:2 [numa] l3:2 l2:2 core:1 pu:2"); }

inline int count(const Machine& machine, NodeKind kind) {
  int found = 0;
  for (const Node& node : machine.nodes) found += node.kind == kind;
  return found;
}

/// A folder of files that is removed at the end of its scope.
class Tree {
 public:
  Tree()
      : root_(std::filesystem::temp_directory_path() /
              ("tutti-topology-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  Tree& write(const std::string& path, std::string_view text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
    return *this;
  }
  const std::filesystem::path& root() const { return root_; }

 private:
  const std::filesystem::path root_;
};

}  // namespace tutti
