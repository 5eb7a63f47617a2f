#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "network.h"
#include "samples.h"

namespace digits {
namespace {

using testing::ElementsAre;

// Makes inputs and labels of `samples` samples that differ from each other.
Matrix inputs_of(Eigen::Index width, Eigen::Index samples) {
  Matrix inputs(width, samples);
  for (Eigen::Index i = 0; i < inputs.size(); ++i)
    inputs.data()[i] = std::sin(static_cast<float>(i) + 0.5f);
  return inputs;
}

std::vector<std::uint8_t> labels_of(std::size_t samples, std::uint8_t classes) {
  std::vector<std::uint8_t> labels;
  for (std::size_t s = 0; s < samples; ++s)
    labels.push_back(static_cast<std::uint8_t>(s % classes));
  return labels;
}

struct Gradients {
  explicit Gradients(const Network& network) {
    for (const Network::Tensor& tensor : network.tensors()) values.emplace_back(tensor.count, 0.0f);
    spans.assign(values.begin(), values.end());
  }
  std::vector<std::vector<float>> values;
  std::vector<std::span<float>> spans;
};

TEST(Network, GradientsOfEveryParameterAreThoseOfFiniteDifferences) {
  Network network({5, 7, 6, 4}, 3);
  const Matrix inputs = inputs_of(5, 9);
  const std::vector<std::uint8_t> labels = labels_of(9, 4);
  const auto loss = [&] {
    Matrix outputs = network.forward(inputs);
    return softmax_cross_entropy(outputs, labels).sum;
  };
  Gradients gradients(network);
  Matrix delta = network.forward(inputs);
  softmax_cross_entropy(delta, labels);
  network.backward(delta, gradients.spans, [](std::size_t) {});

  for (std::size_t t = 0; t < network.tensors().size(); ++t)
    for (std::size_t i = 0; i < network.values(t).size(); ++i) {
      constexpr float kStep = 1.0f / 64;  // a power of two, so both steps are exact
      float& value = network.values(t)[i];
      const float before = value;
      value = before + kStep;
      const double above = loss();
      value = before - kStep;
      const double below = loss();
      value = before;
      // The third derivative and f32 contribute about 1e-4 each.
      EXPECT_NEAR(gradients.values[t][i], (above - below) / (2 * kStep), 2e-3)
          << network.tensors()[t].name << " " << i;
    }
}

TEST(Network, GradientsBecomeReadyOnceEachFromTheLastToTheFirstAndAreFinalThen) {
  Network network({3, 4, 5, 2}, 1);
  Gradients gradients(network);
  Matrix delta = network.forward(inputs_of(3, 4));
  softmax_cross_entropy(delta, labels_of(4, 2));
  std::vector<std::size_t> order;
  std::vector<std::vector<float>> when_ready(network.tensors().size());
  network.backward(delta, gradients.spans, [&](std::size_t tensor) {
    order.push_back(tensor);
    when_ready[tensor] = gradients.values[tensor];
  });
  EXPECT_THAT(order, ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_EQ(when_ready, gradients.values);
}

TEST(Network, BatchWithoutSamplesHasGradientsOfZero) {
  Network network({3, 4, 2}, 1);
  Gradients gradients(network);
  for (auto& values : gradients.values) std::fill(values.begin(), values.end(), 7.0f);
  Matrix delta = network.forward(Matrix(3, 0));
  EXPECT_EQ(softmax_cross_entropy(delta, {}).sum, 0.0);
  network.backward(delta, gradients.spans, [](std::size_t) {});
  for (const auto& values : gradients.values) EXPECT_THAT(values, testing::Each(0.0f));
}

TEST(Network, TensorsStandInOrderOfUseAndFillTheValues) {
  Network network({3, 4, 2}, 1);
  std::size_t next = 0;
  std::vector<std::string> names;
  for (const Network::Tensor& tensor : network.tensors()) {
    EXPECT_EQ(tensor.offset, next);
    next += tensor.count;
    names.push_back(tensor.name);
  }
  EXPECT_EQ(next, network.values().size());
  EXPECT_EQ(next, 3u * 4 + 4 + 4 * 2 + 2);
  EXPECT_THAT(names, ElementsAre("layer1.weight", "layer1.bias", "layer2.weight", "layer2.bias"));
}

TEST(SoftmaxCrossEntropy, EqualOutputsLoseTheLogarithmOfTheNumberOfClasses) {
  Matrix outputs = Matrix::Constant(10, 3, 42.0f);
  const Loss loss = softmax_cross_entropy(outputs, std::vector<std::uint8_t>{1, 2, 0});
  EXPECT_NEAR(loss.sum, 3 * std::log(10.0), 1e-6);
  EXPECT_NEAR(outputs(1, 0), -0.9f, 1e-6f);
  EXPECT_NEAR(outputs(0, 0), 0.1f, 1e-6f);
}

TEST(SoftmaxCrossEntropy, LargeOutputsNeitherOverflowNorLoseTheirSample) {
  Matrix outputs(2, 2);
  outputs << 1e4f, -1e4f,  //
      -1e4f, 1e4f;
  const Loss loss = softmax_cross_entropy(outputs, std::vector<std::uint8_t>{0, 0});
  EXPECT_EQ(loss.sum, 2e4);
  EXPECT_EQ(loss.correct, 1u);
  EXPECT_TRUE(outputs.allFinite());
}

TEST(Samples, ShardsOfAllRanksAreAPartitionInSizeWithinOneOfEachOther) {
  for (std::size_t count : {0u, 1u, 5u, 63u, 64u, 65u}) {
    const std::vector<std::size_t> samples = permutation(count, random_numbers(5, Stream::order));
    for (int ranks = 1; ranks <= 70; ++ranks) {
      std::multiset<std::size_t> all;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<std::size_t> mine = shard(samples, rank, ranks);
        EXPECT_LE(mine.size(), count / static_cast<std::size_t>(ranks) + 1);
        all.insert(mine.begin(), mine.end());
      }
      ASSERT_EQ(all, std::multiset<std::size_t>(samples.begin(), samples.end()))
          << count << " samples, " << ranks << " ranks";
    }
  }
}

TEST(Samples, SplitHoldsAFifthOutAndUsesEverySampleOnce) {
  for (const std::size_t count : {5u, 9u, 1797u}) {
    const Split parts = split(count, 1);
    EXPECT_EQ(parts.held_out.size(), count / 5);
    std::set<std::size_t> all(parts.training.begin(), parts.training.end());
    all.insert(parts.held_out.begin(), parts.held_out.end());
    EXPECT_EQ(all.size(), count);
    EXPECT_EQ(*all.rbegin(), count - 1);
    EXPECT_EQ(parts.training.size() + parts.held_out.size(), count);
  }
}

TEST(Samples, OrderIsDecidedBySeedPurposeAndNumberAndTheSameOnEveryMachine) {
  const auto order = [](std::uint64_t seed, Stream stream, std::uint32_t number) {
    return permutation(8, random_numbers(seed, stream, number));
  };
  EXPECT_THAT(order(1, Stream::order, 0), ElementsAre(0, 2, 3, 1, 5, 7, 4, 6));
  EXPECT_EQ(order(1, Stream::order, 0), order(1, Stream::order, 0));
  const std::set<std::vector<std::size_t>> different{
      order(1, Stream::order, 0), order(2, Stream::order, 0), order(1ull << 32, Stream::order, 0),
      order(1, Stream::split, 0), order(1, Stream::order, 1)};
  EXPECT_EQ(different.size(), 5u);
}

}  // namespace
}  // namespace digits
