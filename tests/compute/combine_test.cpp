// Compares every kernel, with every shape, length and alignment, with the plain reference, bit for
// bit.
#include <complex>
#include <tuple>

#include <tutti/error.hpp>

#include "common/wire.h"
#include "fixture.h"

namespace tutti {
namespace {

constexpr bool is_integer(DataType type) { return type <= DataType::uint64; }
constexpr bool is_complex(DataType type) {
  return type == DataType::complex64 || type == DataType::complex128;
}

/// Returns whether the pair of type and reduction exists. This repeats the table of the library on
/// purpose.
bool exists(DataType type, Op op) {
  if (is_integer(type)) return true;
  if (type == DataType::boolean) return op != Op::avg && op != Op::premul_sum;
  const bool orders = op == Op::min || op == Op::max;
  const bool computes =
      op == Op::sum || op == Op::prod || op == Op::avg || op == Op::premul_sum || orders;
  return computes && !(orders && is_complex(type));
}

struct Shape {
  int inputs, outputs;
};
// Shapes for sums: those for which sums of floats have passes of their own, and some for which they
// have none. Other reductions have only one pass of their own.
constexpr Shape kSumShapes[] = {{1, 1}, {1, 3}, {2, 1}, {2, 2}, {3, 1},
                                {4, 1}, {2, 3}, {3, 2}, {5, 1}, {9, 4}};
constexpr Shape kShapes[] = {{1, 1}, {2, 1}, {3, 2}, {5, 4}};

class Combine : public OnEveryTarget {
 protected:
  // Passes Calls with an op, a shape, a divisor and premultiplied inputs to `each`, where these
  // make sense.
  template <typename Each>
  static void for_each_op_and_shape(DataType type, Each each) {
    for (int o = 0; o < kOps; ++o) {
      const auto op = static_cast<Op>(o);
      if (!exists(type, op)) continue;
      const bool sums = op == Op::sum || op == Op::avg;
      const std::span<const Shape> shapes(sums ? kSumShapes : kShapes,
                                          sums ? std::size(kSumShapes) : std::size(kShapes));
      for (const Shape shape : shapes) {
        Call call{.op = op, .inputs = shape.inputs, .outputs = shape.outputs};
        each(call);
        if (op == Op::avg) call.divide_by = static_cast<std::uint32_t>(shape.inputs) + 1;
        // For premul_sum, the last, the first or all inputs are premultiplied.
        if (op == Op::premul_sum)
          call.premultiplied_inputs = std::uint64_t{1} << (shape.inputs - 1);
        if (op == Op::avg || op == Op::premul_sum) each(call);
        if (op == Op::premul_sum && shape.inputs > 1) {
          call.premultiplied_inputs = 1;
          each(call);
          call.premultiplied_inputs = (std::uint64_t{1} << shape.inputs) - 1;
          each(call);
        }
      }
    }
  }

  // Runs `each` for calls of one type and at most `count` elements.
  template <typename T, typename Each>
  static void on_type(std::size_t count, Each each) {
    for_each_op_and_shape(type_of<T>(), [&](const Call& call) {
      const Problem<T> problem(call, Values<T>(count).inputs(call.inputs, count));
      each(call, [&](const Call& varied) { problem.check(varied); });
    });
  }
  template <typename Each>
  static void on_every_type(std::size_t count, Each each) {
    on_type<std::int8_t>(count, each);
    on_type<std::uint8_t>(count, each);
    on_type<std::int16_t>(count, each);
    on_type<std::uint16_t>(count, each);
    on_type<std::int32_t>(count, each);
    on_type<std::uint32_t>(count, each);
    on_type<std::int64_t>(count, each);
    on_type<std::uint64_t>(count, each);
    on_type<float16>(count, each);
    on_type<bfloat16>(count, each);
    on_type<float>(count, each);
    on_type<double>(count, each);
    on_type<float8_e4m3>(count, each);
    on_type<float8_e5m2>(count, each);
    on_type<std::complex<float>>(count, each);
    on_type<std::complex<double>>(count, each);
    on_type<Truth>(count, each);
  }
};

TEST_P(Combine, EveryTypeReductionShapeAndLengthMatchesTheReferenceBitForBit) {
  on_every_type(513, [](Call call, auto check) {
    for (const std::size_t count : {0,  1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17,
                                    31, 32, 33, 63, 64, 65, 127, 129, 255, 256, 257, 513}) {
      call.count = count;
      check(call);
    }
  });
}

TEST_P(Combine, SeveralKibibytesMatchTheReferenceBitForBit) {
  on_every_type(4099, [](Call call, auto check) {
    call.count = 4099;
    check(call);
  });
}

TEST_P(Combine, MisalignedBuffersGiveTheSameBits) {
  on_every_type(1031, [](Call call, auto check) {
    for (const std::size_t count : {3, 61, 1031})
      for (const std::size_t offset : {8, 1, 63}) {
        call.count = count;
        call.offset_bytes = offset;
        call.apart_bytes = 20;
        check(call);
      }
  });
}

TEST_P(Combine, AnOutputMayBeAnyOfTheInputs) {
  on_every_type(2050, [](Call call, auto check) {
    for (const std::size_t count : {2, 37, 2050})
      for (int j = 0; j < call.inputs; ++j) {
        call.count = count;
        call.offset_bytes = 16;
        call.output_0_is_input = j;
        check(call);
      }
  });
}

TEST_P(Combine, StreamedOutputsGiveTheSameBits) {
  on_every_type(401, [](Call call, auto check) {
    for (const std::size_t count : {5, 401})
      for (const std::uint64_t streamed : {1, 2, 5, 15}) {
        if (streamed >= std::uint64_t{2} << call.outputs) continue;  // There are fewer outputs.
        for (const auto& [offset, apart] : {std::pair{0, 0}, {24, 0}, {8, 16}, {3, 0}, {4, 7}}) {
          call.count = count;
          call.stream_outputs = streamed;
          call.offset_bytes = static_cast<std::size_t>(offset);
          call.apart_bytes = static_cast<std::size_t>(apart);
          check(call);
        }
      }
  });
}

TEST_P(Combine, AStreamedOutputThatIsAlsoAnInputIsWrittenAsUsual) {
  on_every_type(1501, [](Call call, auto check) {
    call.count = 1501;
    call.stream_outputs = 15;
    call.offset_bytes = 8;
    call.output_0_is_input = call.inputs - 1;
    check(call);
  });
}

class Accumulate : public Combine {
 protected:
  // Checks every mask of f32 operands, in place and out of place.
  template <typename T>
  static void check_masks(Call call) {
    const auto inputs = Values<T>(5).inputs(call.inputs, 1301);
    call.accumulates_in_f32 = true;
    for (call.f32_inputs = 0; call.f32_inputs >> call.inputs == 0; ++call.f32_inputs)
      for (call.f32_outputs = 0; call.f32_outputs >> call.outputs == 0; ++call.f32_outputs) {
        const Problem<T> problem(call, inputs);
        for (const std::size_t count : {1, 17, 1301}) {
          call.count = count;
          call.offset_bytes = count % 5;
          problem.check(call);
        }
        const int last = call.inputs - 1;
        if (has_bit(call.f32_inputs, last) != has_bit(call.f32_outputs, 0)) continue;
        Call in_place = call;
        in_place.output_0_is_input = last;
        problem.check(in_place);
      }
  }
  template <typename T>
  static void check_every_op() {
    for_each_op_and_shape(type_of<T>(), [](const Call& call) {
      if (call.inputs <= 3 && call.outputs <= 2) check_masks<T>(call);
    });
  }
};

TEST_P(Accumulate, WideOperandsMayBeMixedWithOthers) {
  check_every_op<float16>();
  check_every_op<bfloat16>();
  check_every_op<float8_e4m3>();
  check_every_op<float8_e5m2>();
}

INSTANTIATE_ON_EVERY_TARGET(Combine);
INSTANTIATE_ON_EVERY_TARGET(Accumulate);

TEST(CombineFunction, IsTheSameEveryTime) {
  EXPECT_EQ(combine_function(DataType::f32, Op::sum), combine_function(DataType::f32, Op::sum));
  EXPECT_NE(combine_function(DataType::f32, Op::sum), combine_function(DataType::f32, Op::prod));
}

TEST(CombineFunction, APairThatDoesNotExistIsAUsageErrorNamingItAndWhatThereIs) {
  int missing = 0;
  for (int t = 0; t < kDataTypes; ++t)
    for (int o = 0; o < kOps; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<Op>(o);
      if (exists(type, op)) {
        EXPECT_NE(combine_function(type, op), nullptr);
        continue;
      }
      ++missing;
      try {
        combine_function(type, op);
        ADD_FAILURE() << to_string(type) << " " << to_string(op);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        const std::string name(to_string(type));
        const std::string start = name + " " + std::string(to_string(op)) +
                                  ": there is no such reduction; " + name + " has sum, prod";
        EXPECT_EQ(std::string(error.what()).rfind(start, 0), 0u) << error.what();
      }
    }
  // The bitwise and logical reductions are missing for six floats and two complex types, min and
  // max for the complex types, and two reductions for bool.
  EXPECT_EQ(missing, 8 * 5 + 2 * 2 + 2);
}

TEST(CombineFunction, OnlyNarrowFloatsAccumulateInAnotherType) {
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    EXPECT_EQ(combine_function(type, Op::sum, type), combine_function(type, Op::sum));
    EXPECT_NE(combine_function(type, Op::sum, accumulation_type(type)), nullptr);
    if (accumulation_type(type) == type && type != DataType::f32) {
      EXPECT_THROW((void)combine_function(type, Op::sum, DataType::f32), Error);
    }
  }
  EXPECT_EQ(accumulation_type(DataType::f8e5m2), DataType::f32);
  EXPECT_EQ(accumulation_type(DataType::f64), DataType::f64);
  EXPECT_THROW((void)combine_function(DataType::f16, Op::sum, DataType::f64), Error);
  EXPECT_THROW((void)combine_function(DataType::f16, Op::bit_or, DataType::f32), Error);
}

TEST(CombineFunction, AnOpOrTypeThatDoesNotExistIsAUsageError) {
  EXPECT_THROW((void)combine_function(DataType::f32, static_cast<Op>(200)), Error);
  EXPECT_THROW((void)combine_function(static_cast<DataType>(200), Op::sum), Error);
}

}  // namespace
}  // namespace tutti
