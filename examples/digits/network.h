// A multilayer perceptron with its own forward and backward: tanh between layers, softmax and
// cross-entropy at the end. Knows nothing of ranks.
//
// Not ReLU, since its derivative jumps: in every fourth training or so a last bit, which depends on
// the number of ranks, switches a neuron off, and the losses part by 1e-3 in place of 1e-6.
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
    std::size_t offset;  // in values()
    std::size_t count;
  };

  /// `widths`: of the input, the hidden layers and the output. He's uniform weights, biases of
  /// zero.
  Network(std::vector<std::size_t> widths, std::uint64_t seed);

  const std::vector<std::size_t>& widths() const { return widths_; }
  /// Weight and bias of each layer, in the order of their use in forward.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::span<float> values() { return values_; }  // of all tensors, one after another
  std::span<float> values(std::size_t tensor);

  /// The outputs before softmax. Keeps what backward() needs.
  const Matrix& forward(const Matrix& inputs);

  /// Writes the gradient of each tensor to `gradients[tensor]`, from the last to the first, and
  /// calls `ready(tensor)` as soon as it is final: what follows needs it no more.
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
  double sum = 0;           // of the samples' cross-entropies
  std::size_t correct = 0;  // samples whose greatest output is the label
};

/// Also turns `outputs` into the gradient of `sum` by them.
Loss softmax_cross_entropy(Matrix& outputs, std::span<const std::uint8_t> labels);

}  // namespace digits
