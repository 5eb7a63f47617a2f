// Scenarios of functions, for tests with the memory model.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/interleaving/memory_model.h"

namespace tutti::interleaving {

using testing::HasSubstr;

/// A scenario given by functions, which share the members of a class that they own.
template <typename Shared>
class Meeting final : public Scenario {
 public:
  using Body = void (*)(Shared&);
  Meeting(std::vector<Body> bodies, Body check) : bodies_(std::move(bodies)), check_(check) {}
  int threads() const override { return static_cast<int>(bodies_.size()); }
  void run(int number) override { bodies_[static_cast<std::size_t>(number)](shared_); }
  void check() override {
    if (check_ != nullptr) check_(shared_);
  }

 private:
  Shared shared_;
  const std::vector<Body> bodies_;
  const Body check_;
};

template <typename Shared>
Exploration explore(std::vector<void (*)(Shared&)> bodies, void (*check)(Shared&) = nullptr) {
  return MemoryModel::explore([&] { return std::make_unique<Meeting<Shared>>(bodies, check); });
}

inline void require(bool holds, std::string_view what) {
  if (!holds) throw std::runtime_error(std::string(what));
}

inline void expect_holds(const Exploration& found, std::uint64_t least_executions) {
  EXPECT_EQ(found.failure, "");
  EXPECT_TRUE(found.complete);
  EXPECT_GE(found.executions, least_executions);
  testing::Test::RecordProperty("executions", static_cast<int>(found.executions));
}

inline constexpr auto kRelaxed = std::memory_order_relaxed;
inline constexpr auto kAcquire = std::memory_order_acquire;
inline constexpr auto kRelease = std::memory_order_release;
inline constexpr auto kSequential = std::memory_order_seq_cst;

}  // namespace tutti::interleaving
