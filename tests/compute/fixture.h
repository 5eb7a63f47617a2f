// Calls kernels on guarded, misaligned buffers, with every instruction set that this machine
// supports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compute/combine.h"
#include "compute/targets.h"
#include "reference.h"
// This header must come after targets.h, which selects the instruction sets.
#include <hwy/highway.h>

namespace tutti {

using hwy::GetChosenTarget;

/// Runs each test once for each instruction set, and restores the machine's own choice afterwards.
class OnEveryTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline std::string target_name(const testing::TestParamInfo<std::int64_t>& target) {
  return hwy::TargetName(target.param);
}

#define INSTANTIATE_ON_EVERY_TARGET(suite)                                                         \
  INSTANTIATE_TEST_SUITE_P(Compute, suite, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), \
                           target_name)

/// Holds elements that begin `offset_bytes` after the start of a cache line, between guard bytes,
/// which nobody may change.
template <typename T>
class GuardedBuffer {
 public:
  GuardedBuffer(std::span<const T> values, std::size_t offset_bytes)
      : bytes_(2 * kGuardBytes + kLine + offset_bytes + values.size_bytes(), kGuard),
        count_(values.size()) {
    begin_ = kGuardBytes + offset_bytes;
    begin_ += (kLine - reinterpret_cast<std::uintptr_t>(bytes_.data()) % kLine) % kLine;
    if (!values.empty()) std::memcpy(data(), values.data(), values.size_bytes());
  }

  void* data() { return bytes_.data() + begin_; }
  std::vector<T> values() const {
    std::vector<T> copy(count_);
    if (count_ > 0) std::memcpy(copy.data(), bytes_.data() + begin_, count_ * sizeof(T));
    return copy;
  }
  bool guards_are_untouched() const {
    const auto is_guard = [](std::uint8_t byte) { return byte == kGuard; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(bytes_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(count_ * sizeof(T)), bytes_.end(),
                       is_guard);
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kGuardBytes = 128;
  static constexpr std::uint8_t kGuard = 0xA5;

  std::vector<std::uint8_t> bytes_;
  std::size_t begin_ = 0;
  std::size_t count_;
};

/// The parameters of a call.
struct Call {
  Op op = Op::sum;
  int inputs = 2;
  int outputs = 1;
  std::size_t count = 0;
  std::uint32_t divide_by = 1;
  std::uint64_t stream_outputs = 0;
  std::size_t offset_bytes = 0;  ///< Offset of the first buffer in a cache line.
  std::size_t apart_bytes = 0;   ///< Added to the offset for each further buffer.
  int output_0_is_input = -1;
  std::uint64_t premultiplied_inputs = 0;
  bool accumulates_in_f32 = false;
  std::uint64_t f32_inputs = 0;
  std::uint64_t f32_outputs = 0;

  std::string text(DataType type) const {
    return std::string(to_string(type)) + " " + std::string(to_string(op)) + " " +
           std::to_string(inputs) + " -> " + std::to_string(outputs) + ", count " +
           std::to_string(count) + ", divided by " + std::to_string(divide_by) + ", streamed " +
           std::to_string(stream_outputs) + ", offset " + std::to_string(offset_bytes) + " + " +
           std::to_string(apart_bytes) + ", in place on " + std::to_string(output_0_is_input) +
           ", premultiplied " + std::to_string(premultiplied_inputs) + ", wide " +
           std::to_string(f32_inputs) + " -> " + std::to_string(f32_outputs);
  }
};

inline bool has_bit(std::uint64_t mask, int k) { return (mask >> k & 1) != 0; }

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <typename T>
std::vector<std::uint8_t> bytes_of(std::span<const T> values) {
  std::vector<std::uint8_t> bytes(values.size_bytes());
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Generates elements of all kinds: about a third random bits, a third small numbers and a third
/// edge cases (NaN of several kinds, infinities, zeros, denormals; the ends of the range).
template <typename T>
class Values {
 public:
  explicit Values(std::uint64_t seed) : random_(seed) {}

  std::vector<std::vector<T>> inputs(int number, std::size_t count) {
    std::vector<std::vector<T>> all(static_cast<std::size_t>(number), std::vector<T>(count));
    for (auto& input : all) std::generate(input.begin(), input.end(), [this] { return next(); });
    return all;
  }
  T next();

 private:
  std::mt19937_64 random_;
};

/// The inputs and expected results for calls that have the same type, reduction and operands. A
/// call with fewer elements uses the first of them.
template <typename T>
class Problem {
 public:
  using Work = reference::Work<T>;

  Problem(const Call& call, std::vector<std::vector<T>> inputs)
      : inputs_(std::move(inputs)), scalar_(Values<T>(call.divide_by + 17).next()) {
    const std::size_t most = inputs_[0].size();
    if (call.f32_inputs != 0) f32_inputs_ = Values<Work>(most).inputs(call.inputs, most);
    std::vector<Work> operands(inputs_.size());
    for (std::size_t i = 0; i < most; ++i) {
      for (int j = 0; j < call.inputs; ++j) {
        operands[j] =
            has_bit(call.f32_inputs, j) ? f32_inputs_[j][i] : reference::to_work(inputs_[j][i]);
        if (has_bit(call.premultiplied_inputs, j)) operands[j] = product(call, operands[j]);
      }
      const Work result = reference::reduce<Work>(call.op, operands, call.divide_by);
      held_.push_back(is_copy(call) ? inputs_[0][i] : reference::from_work<T>(result));
      folded_.push_back(is_copy(call) && call.f32_inputs != 0 ? f32_inputs_[0][i] : result);
    }
  }

  /// Makes the call, and checks its outputs, its inputs and the guard bytes around them.
  void check(const Call& call) const {
    std::vector<GuardedBuffer<std::uint8_t>> buffers;
    std::size_t offset = call.offset_bytes;
    const auto add = [&](const std::vector<std::uint8_t>& bytes) {
      buffers.emplace_back(bytes, offset);
      offset = (offset + call.apart_bytes) % 64;
    };
    for (int j = 0; j < call.inputs; ++j) add(input(call, j));
    for (int k = 0; k < call.outputs; ++k) add(std::vector<std::uint8_t>(result(call, k).size()));
    make(call, buffers);
    for (int k = 0; k < call.outputs; ++k) {
      const bool aliased = k == 0 && call.output_0_is_input >= 0;
      const auto& buffer = buffers[aliased ? call.output_0_is_input : call.inputs + k];
      EXPECT_TRUE(buffer.values() == result(call, k))
          << "output " << k << " of " << call.text(type_of<T>());
    }
    for (int j = 0; j < call.inputs; ++j) {
      if (j == call.output_0_is_input) continue;
      EXPECT_TRUE(buffers[j].values() == input(call, j))
          << "input " << j << " of " << call.text(type_of<T>());
    }
    for (const auto& buffer : buffers)
      EXPECT_TRUE(buffer.guards_are_untouched())
          << "around a buffer of " << call.text(type_of<T>());
  }

 private:
  // Returns the product as a message would contain it: rounded to the type, unless messages hold
  // f32.
  Work product(const Call& call, Work operand) const {
    const Work exact =
        reference::finish(reference::fold(Op::prod, operand, reference::to_work(scalar_)), 1);
    const bool wide = (call.f32_inputs | call.f32_outputs) != 0;
    return wide ? exact : reference::to_work(reference::from_work<T>(exact));
  }
  // A single input that is neither converted, multiplied nor divided is copied bit for bit.
  static bool is_copy(const Call& call) {
    const std::uint64_t all = (std::uint64_t{1} << call.outputs) - 1;
    return call.inputs == 1 && call.divide_by == 1 && !has_bit(call.premultiplied_inputs, 0) &&
           call.f32_outputs == (has_bit(call.f32_inputs, 0) ? all : 0);
  }
  std::vector<std::uint8_t> input(const Call& call, int j) const {
    if (has_bit(call.f32_inputs, j)) return first(call, f32_inputs_[j]);
    return first(call, inputs_[j]);
  }
  std::vector<std::uint8_t> result(const Call& call, int k) const {
    return has_bit(call.f32_outputs, k) ? first(call, folded_) : first(call, held_);
  }
  template <typename E>
  static std::vector<std::uint8_t> first(const Call& call, const std::vector<E>& elements) {
    return bytes_of(std::span<const E>(elements).first(call.count));
  }

  void make(const Call& call, std::vector<GuardedBuffer<std::uint8_t>>& buffers) const {
    std::vector<const void*> in;
    std::vector<void*> out;
    for (int j = 0; j < call.inputs; ++j) in.push_back(buffers[j].data());
    for (int k = 0; k < call.outputs; ++k) out.push_back(buffers[call.inputs + k].data());
    if (call.output_0_is_input >= 0) out[0] = buffers[call.output_0_is_input].data();
    const CombineExtras extras{.premultiplied_inputs = call.premultiplied_inputs,
                               .premultiply = &scalar_,
                               .f32_inputs = call.f32_inputs,
                               .f32_outputs = call.f32_outputs};
    const bool plain = call.premultiplied_inputs == 0 && !call.accumulates_in_f32;
    const CombineFunction function = call.accumulates_in_f32
                                         ? combine_function(type_of<T>(), call.op, DataType::f32)
                                         : combine_function(type_of<T>(), call.op);
    function({.in = in.data(),
              .inputs = call.inputs,
              .out = out.data(),
              .outputs = call.outputs,
              .count = call.count,
              .divide_by = call.divide_by,
              .stream_outputs = call.stream_outputs,
              .extras = plain ? nullptr : &extras});
  }

  std::vector<std::vector<T>> inputs_;
  std::vector<std::vector<Work>> f32_inputs_;
  T scalar_;
  std::vector<T> held_;
  std::vector<Work> folded_;
};

template <typename T>
void check(const Call& call, const std::vector<std::vector<T>>& inputs) {
  Problem<T>(call, inputs).check(call);
}

}  // namespace tutti
