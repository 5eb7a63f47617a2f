// Tests reductions that the program provides.
#include <numeric>
#include <stdexcept>

#include <tutti/error.hpp>

#include "fixture.h"

namespace tutti {
namespace {

// The function x -> scale * x + shift, modulo 2^64. The reduction composes such functions, `in`
// after `inout`, which is associative but not commutative.
struct Affine {
  std::uint64_t scale, shift;
};
Affine after(Affine left, Affine right) {
  return {left.scale * right.scale, left.scale * right.shift + left.shift};
}
void compose(const void* in, void* inout, std::size_t count, void* calls) {
  for (std::size_t i = 0; i < count; ++i) {
    Affine left, right;
    std::memcpy(&left, static_cast<const Affine*>(in) + i, sizeof left);
    std::memcpy(&right, static_cast<Affine*>(inout) + i, sizeof right);
    right = after(left, right);
    std::memcpy(static_cast<Affine*>(inout) + i, &right, sizeof right);
  }
  if (calls != nullptr) ++*static_cast<int*>(calls);
}
const UserReduction kCompose{"compose", sizeof(Affine), compose};

void call(const UserReduction& reduction, const std::vector<const void*>& in,
          const std::vector<void*>& out, std::size_t count) {
  const CombineExtras extras{.user = &reduction};
  combine_function(reduction)({.in = in.data(),
                               .inputs = static_cast<int>(in.size()),
                               .out = out.data(),
                               .outputs = static_cast<int>(out.size()),
                               .count = count,
                               .extras = &extras});
}

// Compares with a fold from the left. `in_place` is the index of the input that is also output 0,
// or -1.
void check_composition(int inputs, int outputs, std::size_t count, int in_place) {
  std::mt19937_64 random(count + 1);
  std::vector<std::vector<Affine>> operands(static_cast<std::size_t>(inputs));
  for (auto& operand : operands)
    for (std::size_t i = 0; i < count; ++i) operand.push_back({random(), random()});
  std::vector<Affine> expected = operands[0];
  for (int j = 1; j < inputs; ++j)
    for (std::size_t i = 0; i < count; ++i) expected[i] = after(expected[i], operands[j][i]);

  std::vector<GuardedBuffer<Affine>> buffers;
  for (const auto& operand : operands) buffers.emplace_back(operand, buffers.size() * 3);
  for (int k = 0; k < outputs; ++k) buffers.emplace_back(std::vector<Affine>(count), 5);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (int j = 0; j < inputs; ++j) in.push_back(buffers[j].data());
  for (int k = 0; k < outputs; ++k) out.push_back(buffers[inputs + k].data());
  if (in_place >= 0) out[0] = buffers[in_place].data();
  call(kCompose, in, out, count);

  for (int k = 0; k < outputs; ++k) {
    const auto& buffer = buffers[k == 0 && in_place >= 0 ? in_place : inputs + k];
    EXPECT_EQ(bytes_of(std::span<const Affine>(buffer.values())),
              bytes_of(std::span<const Affine>(expected)))
        << inputs << " -> " << outputs << ", count " << count << ", in place on " << in_place;
  }
  for (const auto& buffer : buffers) EXPECT_TRUE(buffer.guards_are_untouched());
}

TEST(UserReduction, IsFoldedFromTheLeftThoughItDoesNotCommute) {
  for (const int inputs : {1, 2, 3, 4, 7})
    for (const int outputs : {1, 2})
      for (const std::size_t count : {0, 1, 255, 256, 257, 1000})
        for (int in_place = -1; in_place < inputs; ++in_place)
          check_composition(inputs, outputs, count, in_place);
}

TEST(UserReduction, GetsItsContextAndAFewKibibytesAtATime) {
  int calls = 0;
  UserReduction counted = kCompose;
  counted.context = &calls;
  std::vector<Affine> a(1000, {1, 2}), b(1000, {3, 4}), c(1000);
  call(counted, {a.data(), b.data()}, {c.data()}, c.size());
  EXPECT_EQ(calls, 4);  // Each call has 256 elements, except the last.
}

TEST(UserReduction, ElementsMayHaveAnySizeUpToTheGreatest) {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{3}, std::size_t{1000}, kMaxUserElementBytes}) {
    // The function works on bytes, whatever the element is; its context says how many an element
    // has.
    UserReduction xor_of_bytes{
        "xor", size, [](const void* in, void* inout, std::size_t count, void* context) {
          const std::size_t bytes = count * *static_cast<std::size_t*>(context);
          for (std::size_t i = 0; i < bytes; ++i)
            static_cast<std::uint8_t*>(inout)[i] ^= static_cast<const std::uint8_t*>(in)[i];
        }};
    std::size_t element = size;
    xor_of_bytes.context = &element;
    std::vector<std::uint8_t> a(7 * size), b(7 * size), c(7 * size);
    std::iota(a.begin(), a.end(), std::uint8_t{1});
    std::iota(b.begin(), b.end(), std::uint8_t{77});
    call(xor_of_bytes, {a.data(), b.data(), a.data()}, {c.data()}, 7);
    EXPECT_EQ(c, b) << size;
  }
}

TEST(UserReduction, WhatItThrowsPassesThrough) {
  const UserReduction thrower{"thrower", 4, [](const void*, void*, std::size_t, void*) {
                                throw std::runtime_error("from the callback");
                              }};
  std::vector<int> a(3), b(3), c(3);
  EXPECT_THROW(call(thrower, {a.data(), b.data()}, {c.data()}, 3), std::runtime_error);
  EXPECT_NO_THROW(call(thrower, {a.data()}, {c.data()}, 3));  // a single input is copied
}

TEST(UserReduction, WithoutAFunctionOrWithAnImpossibleElementIsAUsageErrorNamingIt) {
  const auto refused = [](const UserReduction& reduction) {
    try {
      combine_function(reduction);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refused({"mine", 4, nullptr}).find("\"mine\" has no function"), std::string::npos);
  EXPECT_NE(refused({"mine", 0, compose}).find("an element of 0 bytes"), std::string::npos);
  EXPECT_NE(refused({"mine", kMaxUserElementBytes + 1, compose}).find("1 to 4096"),
            std::string::npos);
  EXPECT_EQ(refused(kCompose), "accepted");
}

}  // namespace
}  // namespace tutti
