// Every kernel, shape, length and alignment against the plain reference, bit for bit.
#include <array>
#include <tuple>

#include <tutti/error.hpp>

#include "fixture.h"

namespace tutti {
namespace {

constexpr std::array kEveryOp{Op::sum, Op::prod, Op::min, Op::max, Op::avg};

struct Shape {
  int inputs, outputs;
};
// Those with a pass of their own, and some that have none.
constexpr std::array<Shape, 10> kShapes{
    {{1, 1}, {1, 3}, {2, 1}, {2, 2}, {3, 1}, {4, 1}, {2, 3}, {3, 2}, {5, 1}, {9, 4}}};

class Combine : public OnEveryTarget {
 protected:
  // `each` gets a Call with its op, shape and a divisor where one makes sense.
  template <typename Each>
  void for_each_op_and_shape(Each each) {
    for (const Op op : kEveryOp)
      for (const Shape shape : kShapes) {
        Call call{.op = op, .inputs = shape.inputs, .outputs = shape.outputs};
        each(call);
        if (op != Op::avg) continue;
        call.divide_by = static_cast<std::uint32_t>(shape.inputs) + 1;
        each(call);
      }
  }

  template <typename T>
  void check_every_type_with(Call call) {
    check<T>(call, Values<T>(call.count).inputs(call.inputs, call.count));
  }
  void check_every_type(const Call& call) {
    check_every_type_with<float>(call);
    check_every_type_with<double>(call);
    check_every_type_with<bfloat16>(call);
    check_every_type_with<std::int32_t>(call);
    check_every_type_with<std::int64_t>(call);
  }
};

TEST_P(Combine, EveryShapeAndLengthMatchesTheReferenceBitForBit) {
  for_each_op_and_shape([this](Call call) {
    for (const std::size_t count : {0,  1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17,
                                    31, 32, 33, 63, 64, 65, 127, 129, 255, 256, 257, 513}) {
      call.count = count;
      check_every_type(call);
    }
  });
}

TEST_P(Combine, SeveralKibibytesMatchTheReferenceBitForBit) {
  for_each_op_and_shape([this](Call call) {
    call.count = 4099;
    check_every_type(call);
  });
}

TEST_P(Combine, MisalignedBuffersGiveTheSameBits) {
  for_each_op_and_shape([this](Call call) {
    for (const std::size_t count : {3, 61, 1031})
      for (const std::size_t offset : {8, 1, 63}) {
        call.count = count;
        call.offset_bytes = offset;
        call.apart_bytes = 20;
        check_every_type(call);
      }
  });
}

TEST_P(Combine, AnOutputMayBeAnyOfTheInputs) {
  for_each_op_and_shape([this](Call call) {
    for (const std::size_t count : {2, 37, 2050})
      for (int j = 0; j < call.inputs; ++j) {
        call.count = count;
        call.offset_bytes = 16;
        call.output_0_is_input = j;
        check_every_type(call);
      }
  });
}

TEST_P(Combine, StreamedOutputsGiveTheSameBits) {
  for_each_op_and_shape([this](Call call) {
    for (const std::size_t count : {5, 3001})
      for (const std::uint64_t streamed : {1, 2, 5, 15})
        for (const auto& [offset, apart] : {std::pair{0, 0}, {24, 0}, {8, 16}, {3, 0}, {4, 7}}) {
          call.count = count;
          call.stream_outputs = streamed;
          call.offset_bytes = static_cast<std::size_t>(offset);
          call.apart_bytes = static_cast<std::size_t>(apart);
          check_every_type(call);
        }
  });
}

TEST_P(Combine, AStreamedOutputThatIsAlsoAnInputIsWrittenAsUsual) {
  for_each_op_and_shape([this](Call call) {
    call.count = 3001;
    call.stream_outputs = 15;
    call.offset_bytes = 8;
    call.output_0_is_input = call.inputs - 1;
    check_every_type(call);
  });
}

INSTANTIATE_ON_EVERY_TARGET(Combine);

TEST(CombineFunction, IsTheSameEveryTime) {
  EXPECT_EQ(combine_function(DataType::f32, Op::sum), combine_function(DataType::f32, Op::sum));
  EXPECT_NE(combine_function(DataType::f32, Op::sum), combine_function(DataType::f32, Op::prod));
}

TEST(CombineFunction, ATypeWithoutReductionsIsAUsageErrorNamingThePair) {
  for (int t = 0; t < kDataTypes; ++t)
    for (const Op op : kEveryOp) {
      const auto type = static_cast<DataType>(t);
      try {
        EXPECT_NE(combine_function(type, op), nullptr);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        const std::string pair = std::string(to_string(type)) + " " + std::string(to_string(op));
        EXPECT_EQ(std::string(error.what()).rfind(pair + ": ", 0), 0u) << error.what();
      }
    }
  EXPECT_THROW((void)combine_function(DataType::f16, Op::sum), Error);
  EXPECT_THROW((void)combine_function(DataType::boolean, Op::max), Error);
}

TEST(CombineFunction, AnOpOrTypeThatDoesNotExistIsAUsageError) {
  EXPECT_THROW((void)combine_function(DataType::f32, static_cast<Op>(200)), Error);
  EXPECT_THROW((void)combine_function(static_cast<DataType>(200), Op::sum), Error);
}

}  // namespace
}  // namespace tutti
