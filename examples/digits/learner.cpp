#include "learner.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace digits {
namespace {

struct Batch {
  Matrix inputs;
  std::vector<std::uint8_t> labels;
};

Batch gather(const Dataset& data, std::span<const std::size_t> samples) {
  const std::size_t pixels = data.pixels_per_image();
  const float scale = data.brightest == 0 ? 0.0f : 1.0f / data.brightest;
  Batch batch;
  batch.inputs.resize(static_cast<Eigen::Index>(pixels), static_cast<Eigen::Index>(samples.size()));
  float* to = batch.inputs.data();
  for (const std::size_t sample : samples) {
    const auto image = std::span(data.pixels).subspan(sample * pixels, pixels);
    to = std::transform(image.begin(), image.end(), to, [&](auto pixel) { return pixel * scale; });
    batch.labels.push_back(data.labels[sample]);
  }
  return batch;
}

std::vector<std::size_t> widths_of(const Dataset& data, const Settings& settings) {
  std::vector<std::size_t> widths{data.pixels_per_image()};
  widths.insert(widths.end(), settings.hidden.begin(), settings.hidden.end());
  widths.push_back(data.classes());
  return widths;
}

}  // namespace

Learner::Learner(const Dataset& data, const Settings& settings, Kind kind)
    : data_(data),
      settings_(settings),
      split_(digits::split(data.size(), settings.seed)),
      network_(widths_of(data, settings), settings.seed),
      velocity_(network_.values().size(), 0.0f),
      counts_(kind == Kind::recoverable ? split_.training.size() : 0, 0.0f) {}

void Learner::attach(tutti::Communicator& communicator) {
  detach();
  std::vector<tutti::ddp::Parameter> parameters;
  for (std::size_t i = 0; i < network_.tensors().size(); ++i)
    parameters.push_back({network_.tensors()[i].name, network_.values(i).data(),
                          network_.tensors()[i].count, tutti::DataType::f32});
  if (!counts_.empty())
    parameters.push_back({"samples", counts_.data(), counts_.size(), tutti::DataType::f32});
  ddp_.emplace(communicator, std::move(parameters), tutti::ddp::Options{settings_.buckets, {}});
  communicator_ = &communicator;
  for (std::size_t i = 0; i < network_.tensors().size(); ++i)
    gradients_.push_back(ddp_->gradient<float>(i));
  if (!counts_.empty()) marks_ = ddp_->gradient<float>(gradients_.size());
}

void Learner::detach() {
  gradients_.clear();
  marks_ = {};
  ddp_.reset();
  communicator_ = nullptr;
}

std::size_t Learner::steps_per_epoch() const {
  return (split_.training.size() + settings_.batch - 1) / settings_.batch;
}

std::span<const std::size_t> Learner::batch_of(std::size_t epoch, std::size_t step) {
  if (ordered_epoch_ != epoch) {
    order_ = permutation(split_.training.size(), random_numbers(settings_.seed, Stream::order,
                                                                static_cast<std::uint32_t>(epoch)));
    ordered_epoch_ = epoch;
  }
  const std::size_t begin = step * settings_.batch;
  assert(begin < order_.size());
  return std::span(order_).subspan(begin, std::min(settings_.batch, order_.size() - begin));
}

void Learner::take_step(std::size_t epoch, std::size_t step, const std::function<void()>& midway) {
  assert(communicator_ != nullptr);
  const std::span<const std::size_t> batch = batch_of(epoch, step);
  const std::vector<std::size_t> mine = shard(batch, communicator_->rank(), communicator_->size());
  std::vector<std::size_t> samples;
  for (const std::size_t i : mine) samples.push_back(split_.training[i]);

  const Batch inputs = gather(data_, samples);
  Matrix delta = network_.forward(inputs.inputs);
  softmax_cross_entropy(delta, inputs.labels);
  delta *= static_cast<float>(communicator_->size()) / static_cast<float>(batch.size());
  if (!counts_.empty()) mark(mine);
  bool first = true;
  network_.backward(std::move(delta), gradients_, [&](std::size_t i) {
    ddp_->ready(i);
    if (std::exchange(first, false) && midway) midway();
  });
  ddp_->finish();
  update();
}

void Learner::mark(std::span<const std::size_t> mine) {
  std::fill(marks_.begin(), marks_.end(), 0.0f);
  // The average over the ranks is 1 where one of them has marked the sample.
  for (const std::size_t i : mine) marks_[i] = static_cast<float>(communicator_->size());
  ddp_->ready(gradients_.size());
}

void Learner::update() {  // stochastic gradient descent with momentum
  if (!counts_.empty()) {
    before_.values.assign(values().begin(), values().end());
    before_.velocity = velocity_;
    before_.counts = counts_;
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += marks_[i];
  }
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const std::span<float> values = network_.values(i);
    float* const velocity = velocity_.data() + network_.tensors()[i].offset;
    for (std::size_t k = 0; k < values.size(); ++k) {
      velocity[k] = settings_.momentum * velocity[k] + gradients_[i][k];
      values[k] -= settings_.learning_rate * velocity[k];
    }
  }
}

void Learner::undo_step() {
  assert(before_.values.size() == values().size());
  // The memory stays where it is, since the parameters of ddp_ refer to it.
  std::copy(before_.values.begin(), before_.values.end(), values().begin());
  std::copy(before_.velocity.begin(), before_.velocity.end(), velocity_.begin());
  std::copy(before_.counts.begin(), before_.counts.end(), counts_.begin());
  before_ = {};
}

Result Learner::measure() {
  const Loss training = loss_over(split_.training);
  const Loss held_out = loss_over(split_.held_out);
  return {training.sum / static_cast<double>(std::max<std::size_t>(1, split_.training.size())),
          static_cast<double>(held_out.correct) /
              static_cast<double>(std::max<std::size_t>(1, split_.held_out.size()))};
}

Loss Learner::loss_over(std::span<const std::size_t> samples) {
  const Batch batch = gather(data_, shard(samples, communicator_->rank(), communicator_->size()));
  Matrix outputs = network_.forward(batch.inputs);
  Loss loss = softmax_cross_entropy(outputs, batch.labels);
  auto correct = static_cast<std::int64_t>(loss.correct);
  communicator_->all_reduce(std::span(&loss.sum, 1));
  communicator_->all_reduce(std::span(&correct, 1));
  loss.correct = static_cast<std::size_t>(correct);
  return loss;
}

}  // namespace digits
