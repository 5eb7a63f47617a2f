// Every kernel computes steps of all shapes, and the results are those of the host's kernels, bit
// for bit. A step is a program of its own, whose operands lie in scratch memory.
#include <gtest/gtest.h>

#include <complex>

#include "../compute/fixture.h"
#include "compute/fixed_point.h"
#include "rank.h"

namespace tutti::device {
namespace {

constexpr std::uint32_t kThreads = 32;

/// A step, as the host's kernels and those of the GPU compute it.
struct Case {
  Program::Kernel kernel;
  int inputs = 2, outputs = 1;
  std::size_t count = 0;
  std::uint32_t divide_by = 1;
  std::size_t offset = 0;  ///< Of the first operand from the alignment of a vector, in bytes.
  std::size_t apart = 0;   ///< What each further operand has more.
  bool in_place = false;
  Program::Masks masks = {};

  bool is_wide(int k) const {
    return k < inputs ? has_bit(masks.f32_inputs, k) : has_bit(masks.f32_outputs, k - inputs);
  }
  std::size_t bytes(int k) const {
    return count * (is_wide(k) ? sizeof(float) : size_of(kernel.type));
  }
  std::string text() const {
    return std::string(to_string(kernel.type)) + " " + std::string(to_string(kernel.op)) +
           " fold " + std::to_string(static_cast<int>(kernel.fold)) + " " + std::to_string(inputs) +
           " -> " + std::to_string(outputs) + ", count " + std::to_string(count) + ", divided by " +
           std::to_string(divide_by) + ", offset " + std::to_string(offset) + " + " +
           std::to_string(apart) + ", in place " + std::to_string(in_place) + ", premultiplied " +
           std::to_string(masks.premultiplied_inputs) + ", wide " +
           std::to_string(masks.f32_inputs) + " -> " + std::to_string(masks.f32_outputs);
  }
};

constexpr std::byte kGuard{0xA5};

/// Where the operands of a case lie in one memory, with guard bytes between them.
struct Layout {
  explicit Layout(const Case& of) {
    for (int k = 0; k < of.inputs + of.outputs; ++k) {
      if (k == of.inputs && of.in_place) {
        offsets.push_back(offsets[0]);
        continue;
      }
      offsets.push_back(bytes + (of.offset + static_cast<std::size_t>(k) * of.apart) % 64);
      bytes = (offsets.back() + of.bytes(k) + 127) / 64 * 64;
    }
  }
  std::size_t bytes = 64;
  std::vector<std::size_t> offsets;
};

CombineFunction host_function(const Program::Kernel& kernel) {
  if (kernel.fold == Program::Fold::copy) return combine_copy;
  if (kernel.fold == Program::Fold::fixed_point) return fixed_point_sum(kernel.type);
  return combine_function(kernel.type, kernel.op, kernel.accumulate);
}

void run_on_host(const Case& of, const Layout& layout, std::byte* memory, const void* scalar) {
  std::vector<const void*> in;
  std::vector<void*> out;
  for (int k = 0; k < of.inputs; ++k) in.push_back(memory + layout.offsets[k]);
  for (int k = 0; k < of.outputs; ++k) out.push_back(memory + layout.offsets[of.inputs + k]);
  const CombineExtras extras{.premultiplied_inputs = of.masks.premultiplied_inputs,
                             .premultiply = scalar,
                             .f32_inputs = of.masks.f32_inputs,
                             .f32_outputs = of.masks.f32_outputs};
  host_function(of.kernel)({.in = in.data(),
                            .inputs = of.inputs,
                            .out = out.data(),
                            .outputs = of.outputs,
                            .count = of.kernel.fold == Program::Fold::copy ? of.bytes(0) : of.count,
                            .divide_by = of.divide_by,
                            .extras = &extras});
}

Program program_of(const Case& of, const Layout& layout) {
  Program program;
  program.widening = of.kernel.accumulate == of.kernel.type
                         ? 0
                         : std::countr_zero(sizeof(float) / size_of(of.kernel.type));
  Program::Step step{};
  step.inputs = static_cast<std::uint32_t>(of.inputs);
  step.outputs = static_cast<std::uint32_t>(of.outputs);
  step.segments = 1;
  step.divide_by = of.divide_by;
  step.bytes[0] = step.bytes[1] = of.count * size_of(of.kernel.type) << program.widening;
  step.kernel = of.kernel;
  for (const std::size_t offset : layout.offsets) {
    Program::Operand operand{};
    operand.place = Place::scratch;
    operand.offset = {offset, offset};
    program.operands.push_back(operand);
  }
  program.steps = {step};
  program.lanes = {{0, 1}};
  program.masks = {of.masks};
  program.scratch_bytes = layout.bytes;
  program.widest_step = layout.offsets.size();
  return program;
}

class Combines : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string missing;
    gpu_ = Gpu::get(missing);
    if (gpu_ == nullptr) GTEST_SKIP() << missing;
  }

  template <typename T>
  void check(const Case& of, Values<T>& values) {
    const Layout layout(of);
    Rank rank(*gpu_, {program_of(of, layout)});
    std::vector<std::byte> expected(layout.bytes, kGuard);
    for (int k = 0; k < of.inputs; ++k) {
      std::byte* const to = expected.data() + layout.offsets[k];
      if (of.is_wide(k))
        fill<float>(to, of.count, wide_);
      else
        fill<T>(to, of.count, values);
    }
    std::byte* const memory = rank.call().scratch;
    std::memcpy(memory, expected.data(), layout.bytes);
    const T scalar = values.next();
    std::memcpy(rank.call().premultiplier, &scalar, sizeof scalar);
    run_on_host(of, layout, expected.data(), &scalar);
    rank.begin(nullptr, nullptr);
    const std::string type(to_string(of.kernel.type));
    ASSERT_TRUE(rank.launch("tutti_run_" + type, kThreads)) << of.text();
    for (std::size_t i = 0; i < layout.bytes; ++i)
      ASSERT_EQ(memory[i], expected[i]) << "byte " << i << ": " << of.text();
  }

  /// Calls `each` for every op and fold of the type, with masks where the type can have them.
  template <typename T, typename Each>
  void for_each_kernel(Each each) {
    constexpr DataType type = type_of<T>();
    for (int number = 0; number < kOps; ++number) {
      const auto op = static_cast<Op>(number);
      try {
        combine_function(type, op);
      } catch (const std::exception&) {
        continue;  // the type has no such reduction
      }
      Case of{.kernel = {Program::Fold::reduce, type, op, type}};
      if (op == Op::avg) of.divide_by = 3;
      if (op == Op::premul_sum) of.masks.premultiplied_inputs = 0b101;
      each(of);
      if (accumulation_type(type) == type) continue;
      of.kernel.accumulate = DataType::f32;
      of.masks.f32_inputs = 0b10110;
      of.masks.f32_outputs = 0b01;
      each(of);
      of.masks.f32_inputs = 0b00001;
      of.masks.f32_outputs = 0;
      each(of);
    }
    if (fixed_point_sum(type) == nullptr) return;
    for (const std::uint32_t divide_by : {1u, 3u}) {
      Case of{.kernel = {Program::Fold::fixed_point, type, Op::avg, type}, .divide_by = divide_by};
      each(of);
      of.masks.premultiplied_inputs = 0b01;
      of.kernel.op = Op::premul_sum;
      if (divide_by == 1) each(of);
    }
  }

  template <typename T>
  void check_type() {
    Values<T> values(size_of(type_of<T>()) * 100 + static_cast<std::size_t>(type_of<T>()));
    std::size_t number = 0;
    for_each_kernel<T>([&](Case of) {
      for (of.inputs = 1; of.inputs <= 5; ++of.inputs) {
        // Of two inputs, alignments and lengths are tried; of other numbers, a few.
        for (const std::size_t count : {0, 1, 3, 17, 67, 64 * 16 + 5}) {
          if (HasFatalFailure()) return;
          const std::size_t varied = ++number;
          if (of.inputs != 2 && (varied + of.inputs) % 3 != 0) continue;
          of.outputs = 1 + static_cast<int>(varied % 3);
          of.count = count;
          of.offset = varied % 4 == 0 ? 1 + varied % 15 : varied % 4 == 1 ? 8 : 0;
          of.apart = varied % 5 == 0 ? 4 : varied % 7 == 0 ? 1 : 0;
          of.in_place = varied % 2 == 0 && of.is_wide(0) == of.is_wide(of.inputs);
          check<T>(of, values);
        }
      }
    });
  }

  Gpu* gpu_ = nullptr;

 private:
  template <typename E>
  static void fill(std::byte* to, std::size_t count, Values<E>& values) {
    for (std::size_t i = 0; i < count; ++i) {
      const E value = values.next();
      std::memcpy(to + i * sizeof value, &value, sizeof value);
    }
  }
  Values<float> wide_{17};
};

TEST_F(Combines, Int8AsTheHost) { check_type<std::int8_t>(); }
TEST_F(Combines, Uint8AsTheHost) { check_type<std::uint8_t>(); }
TEST_F(Combines, Int16AsTheHost) { check_type<std::int16_t>(); }
TEST_F(Combines, Uint16AsTheHost) { check_type<std::uint16_t>(); }
TEST_F(Combines, Int32AsTheHost) { check_type<std::int32_t>(); }
TEST_F(Combines, Uint32AsTheHost) { check_type<std::uint32_t>(); }
TEST_F(Combines, Int64AsTheHost) { check_type<std::int64_t>(); }
TEST_F(Combines, Uint64AsTheHost) { check_type<std::uint64_t>(); }
TEST_F(Combines, F16AsTheHost) { check_type<float16>(); }
TEST_F(Combines, Bf16AsTheHost) { check_type<bfloat16>(); }
TEST_F(Combines, F32AsTheHost) { check_type<float>(); }
TEST_F(Combines, F64AsTheHost) { check_type<double>(); }
TEST_F(Combines, F8E4M3AsTheHost) { check_type<float8_e4m3>(); }
TEST_F(Combines, F8E5M2AsTheHost) { check_type<float8_e5m2>(); }
TEST_F(Combines, Complex64AsTheHost) { check_type<std::complex<float>>(); }
TEST_F(Combines, Complex128AsTheHost) { check_type<std::complex<double>>(); }
TEST_F(Combines, BoolAsTheHost) { check_type<Truth>(); }

TEST_F(Combines, MoreOperandsThanThreadsAndThanMasksHaveBits) {
  Values<float> values(70);
  for (const int inputs : {40, 70, 900})
    for (const auto op : {Op::sum, Op::avg}) {
      Case of{.kernel = {Program::Fold::reduce, DataType::f32, op, DataType::f32},
              .inputs = inputs,
              .outputs = 70,
              .count = 45,
              .divide_by = op == Op::avg ? 7u : 1u};
      check<float>(of, values);
    }
}

}  // namespace
}  // namespace tutti::device
