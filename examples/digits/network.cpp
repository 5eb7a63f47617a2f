#include "network.h"

#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <utility>

#include "samples.h"

namespace digits {
namespace {

using Vector = Eigen::VectorXf;

auto as_matrix(std::span<float> values, std::size_t rows) {
  return Eigen::Map<Matrix>(values.data(), static_cast<Eigen::Index>(rows),
                            static_cast<Eigen::Index>(values.size() / rows));
}
auto as_matrix(std::span<const float> values, std::size_t rows) {
  return Eigen::Map<const Matrix>(values.data(), static_cast<Eigen::Index>(rows),
                                  static_cast<Eigen::Index>(values.size() / rows));
}
auto as_vector(std::span<float> values) {
  return Eigen::Map<Vector>(values.data(), static_cast<Eigen::Index>(values.size()));
}

}  // namespace

Network::Network(std::vector<std::size_t> widths, std::uint64_t seed) : widths_(std::move(widths)) {
  assert(widths_.size() >= 2);
  std::mt19937_64 random = random_numbers(seed, Stream::weights);
  for (std::size_t l = 0; l < layers(); ++l) {
    const std::size_t inputs = widths_[l];
    const std::size_t outputs = widths_[l + 1];
    assert(inputs > 0 && outputs > 0);
    tensors_.push_back({fmt::format("layer{}.weight", l + 1), values_.size(), inputs * outputs});
    const float limit = std::sqrt(3.0f / static_cast<float>(inputs));
    for (std::size_t i = 0; i < inputs * outputs; ++i) {
      const auto in_0_to_1 = static_cast<float>(random() >> 40) * 0x1p-24f;  // exact in 24 bits
      values_.push_back(limit * (2 * in_0_to_1 - 1));
    }
    tensors_.push_back({fmt::format("layer{}.bias", l + 1), values_.size(), outputs});
    values_.resize(values_.size() + outputs, 0.0f);
  }
}

std::span<float> Network::values(std::size_t tensor) {
  return std::span(values_).subspan(tensors_[tensor].offset, tensors_[tensor].count);
}

const Matrix& Network::forward(const Matrix& inputs) {
  activations_.assign(1, inputs);
  for (std::size_t l = 0; l < layers(); ++l) {
    Matrix outputs = as_matrix(values(2 * l), widths_[l + 1]) * activations_[l];
    outputs.colwise() += as_vector(values(2 * l + 1));
    if (l + 1 < layers()) outputs = outputs.array().tanh();
    activations_.push_back(std::move(outputs));
  }
  return activations_.back();
}

void Network::backward(Matrix outputs_gradient, std::span<const std::span<float>> gradients,
                       const std::function<void(std::size_t)>& ready) const {
  assert(gradients.size() == tensors_.size() && activations_.size() == layers() + 1);
  Matrix delta = std::move(outputs_gradient);
  for (std::size_t l = layers(); l-- > 0;) {
    auto bias_gradient = as_vector(gradients[2 * l + 1]);
    bias_gradient.setZero();
    for (const auto& sample : delta.colwise()) bias_gradient += sample;
    ready(2 * l + 1);
    as_matrix(gradients[2 * l], widths_[l + 1]).noalias() = delta * activations_[l].transpose();
    ready(2 * l);
    if (l == 0) break;
    const Tensor& weight = tensors_[2 * l];
    const auto values = std::span(values_).subspan(weight.offset, weight.count);
    delta = (as_matrix(values, widths_[l + 1]).transpose() * delta)
                .cwiseProduct((1.0f - activations_[l].array().square()).matrix());
  }
}

Loss softmax_cross_entropy(Matrix& outputs, std::span<const std::uint8_t> labels) {
  assert(outputs.cols() == static_cast<Eigen::Index>(labels.size()));
  Loss loss;
  for (Eigen::Index s = 0; s < outputs.cols(); ++s) {
    const Eigen::Index label = labels[static_cast<std::size_t>(s)];
    assert(label < outputs.rows());
    auto column = outputs.col(s);
    Eigen::Index greatest = 0;
    const float most = column.maxCoeff(&greatest);
    column.array() -= most;  // so exp() cannot overflow, and the greatest term is 1
    const float label_output = column[label];
    column = column.array().exp();
    const float total = column.sum();
    loss.sum += std::log(static_cast<double>(total)) - static_cast<double>(label_output);
    loss.correct += greatest == label;
    column /= total;
    column[label] -= 1.0f;
  }
  return loss;
}

}  // namespace digits
