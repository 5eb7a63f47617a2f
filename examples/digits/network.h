// A multilayer perceptron with its own forward and backward: tanh between the layers, softmax and
// cross-entropy at the end. It does not depend on the number of ranks.
//
// It does not use ReLU, whose derivative jumps: in about every fourth training a last bit, which
// depends on the number of ranks, switches a neuron off, and the losses differ by 1e-3 instead of
// 1e-6.
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace digits {

using Matrix = Eigen::MatrixXf;  // a column is a sample

class Network {
 public:
  struct Tensor {
    std::string name;
    std::size_t offset;  // index of its first value in values()
    std::size_t count;
  };

  /// `widths` are those of the input, the hidden layers and the output. Weights get He's uniform
  /// distribution, and biases are zero.
  Network(std::vector<std::size_t> widths, std::uint64_t seed);

  const std::vector<std::size_t>& widths() const { return widths_; }
  /// The weight and the bias of each layer, in the order of their use in forward.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::span<float> values() { return values_; }  // values of all tensors, one after the other
  std::span<float> values(std::size_t tensor);

  /// Returns the outputs before softmax, and keeps what backward() needs.
  const Matrix& forward(const Matrix& inputs);

  /// Writes the gradient of each tensor to `gradients[tensor]`, from the last to the first, and
  /// calls `ready(tensor)` as soon as it is final, after which backward() no longer uses it.
  void backward(Matrix outputs_gradient, std::span<const std::span<float>> gradients,
                const std::function<void(std::size_t)>& ready) const;

 private:
  std::size_t layers() const { return widths_.size() - 1; }

  std::vector<std::size_t> widths_;
  std::vector<Tensor> tensors_;
  std::vector<float> values_;
  std::vector<Matrix> activations_;  // the input of each layer, then the outputs
};

struct Loss {
  double sum = 0;           // sum of the samples' cross-entropies
  std::size_t correct = 0;  // number of samples whose greatest output is the label
};

/// Returns the loss, and replaces `outputs` by the gradient of the loss's `sum` with respect to
/// them.
Loss softmax_cross_entropy(Matrix& outputs, std::span<const std::uint8_t> labels);

}  // namespace digits
