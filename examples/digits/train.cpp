#include "train.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <span>

#include "checkpoint.h"
#include "network.h"
#include "samples.h"

namespace digits {
namespace {

using tutti::Communicator;
using tutti::Error;
using tutti::ErrorKind;

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

std::vector<tutti::ddp::Parameter> parameters_of(Network& network) {
  std::vector<tutti::ddp::Parameter> parameters;
  for (std::size_t i = 0; i < network.tensors().size(); ++i)
    parameters.push_back({network.tensors()[i].name, network.values(i).data(),
                          network.tensors()[i].count, tutti::DataType::f32});
  return parameters;
}

class Trainer {
 public:
  Trainer(Communicator& communicator, const Dataset& data, const Settings& settings)
      : communicator_(communicator),
        data_(data),
        settings_(settings),
        split_(split(data.size(), settings.seed)),
        network_(widths_of(data, settings), settings.seed),
        velocity_(network_.values().size(), 0.0f),
        ddp_(communicator, parameters_of(network_), {settings.buckets, {}}) {
    for (std::size_t i = 0; i < network_.tensors().size(); ++i)
      gradients_.push_back(ddp_.gradient<float>(i));
  }

  Result run(Observer* observer) {
    std::size_t epoch = settings_.resume ? resume() : 0;
    ddp_.broadcast_parameters();
    if (observer)
      observer->started({split_.training.size(), split_.held_out.size(), velocity_.size(),
                         ddp_.buckets().size(), epoch, communicator_.size()});
    Result result = measure();
    for (; epoch < settings_.epochs; ++epoch) {
      train_epoch(epoch, observer);
      ddp_.check_parameters();
      result = measure();
      if (observer) observer->finished_epoch(epoch, result);
      if (!settings_.checkpoint.empty() && communicator_.rank() == 0) save_state(epoch + 1);
    }
    return result;
  }

 private:
  void train_epoch(std::size_t epoch, Observer* observer) {
    const std::vector<std::size_t> order = permutation(
        split_.training.size(),
        random_numbers(settings_.seed, Stream::order, static_cast<std::uint32_t>(epoch)));
    std::vector<std::size_t> samples;
    for (const std::size_t i : order) samples.push_back(split_.training[i]);

    const std::size_t steps = (samples.size() + settings_.batch - 1) / settings_.batch;
    for (std::size_t step = 0; step < steps; ++step) {
      const std::size_t begin = step * settings_.batch;
      const std::size_t size = std::min(settings_.batch, samples.size() - begin);
      train_step(std::span(samples).subspan(begin, size));
      if (observer) observer->stepped(epoch, step + 1, steps);
    }
  }

  void train_step(std::span<const std::size_t> samples) {
    const Batch batch = gather(data_, shard(samples, communicator_.rank(), communicator_.size()));
    Matrix delta = network_.forward(batch.inputs);
    softmax_cross_entropy(delta, batch.labels);
    delta *= static_cast<float>(communicator_.size()) / static_cast<float>(samples.size());
    network_.backward(std::move(delta), gradients_, [&](std::size_t i) { ddp_.ready(i); });
    ddp_.finish();
    update();
  }

  void update() {  // stochastic gradient descent with momentum
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const std::span<float> values = network_.values(i);
      float* const velocity = velocity_.data() + network_.tensors()[i].offset;
      for (std::size_t k = 0; k < values.size(); ++k) {
        velocity[k] = settings_.momentum * velocity[k] + gradients_[i][k];
        values[k] -= settings_.learning_rate * velocity[k];
      }
    }
  }

  Result measure() {
    const Loss training = measure(split_.training);
    const Loss held_out = measure(split_.held_out);
    return {training.sum / static_cast<double>(std::max<std::size_t>(1, split_.training.size())),
            static_cast<double>(held_out.correct) /
                static_cast<double>(std::max<std::size_t>(1, split_.held_out.size()))};
  }

  Loss measure(std::span<const std::size_t> samples) {
    const Batch batch = gather(data_, shard(samples, communicator_.rank(), communicator_.size()));
    Matrix outputs = network_.forward(batch.inputs);
    Loss loss = softmax_cross_entropy(outputs, batch.labels);
    auto correct = static_cast<std::int64_t>(loss.correct);
    communicator_.all_reduce(std::span(&loss.sum, 1));
    communicator_.all_reduce(std::span(&correct, 1));
    loss.correct = static_cast<std::size_t>(correct);
    return loss;
  }

  Recipe recipe() const {
    return {{network_.widths().begin(), network_.widths().end()},
            settings_.seed,
            settings_.batch,
            settings_.learning_rate,
            settings_.momentum};
  }

  void save_state(std::size_t epochs_done) {
    const std::span<const float> values = network_.values();
    save(settings_.checkpoint, {recipe(), epochs_done, {values.begin(), values.end()}, velocity_});
  }

  /// Rank 0 reads the file and broadcasts the state, since the other ranks may have no such file.
  /// broadcast_parameters() broadcasts the parameters later.
  std::size_t resume() {
    std::int64_t epochs_done = 0;
    if (communicator_.rank() == 0) {
      Checkpoint checkpoint = load(settings_.checkpoint, recipe());
      if (checkpoint.values.size() != velocity_.size())
        throw Error(ErrorKind::corrupt,
                    fmt::format("checkpoint '{}' has {} parameters, its layers have {}",
                                settings_.checkpoint, checkpoint.values.size(), velocity_.size()));
      std::copy(checkpoint.values.begin(), checkpoint.values.end(), network_.values().begin());
      velocity_ = std::move(checkpoint.velocity);
      epochs_done = static_cast<std::int64_t>(checkpoint.epochs_done);
    }
    communicator_.broadcast(std::span(&epochs_done, 1), 0);
    communicator_.broadcast(std::span(velocity_), 0);
    return static_cast<std::size_t>(epochs_done);
  }

  Communicator& communicator_;
  const Dataset& data_;
  const Settings& settings_;
  const Split split_;
  Network network_;
  std::vector<float> velocity_;              // laid out like the network's values
  tutti::ddp::DataParallel ddp_;             // refers to the network's values
  std::vector<std::span<float>> gradients_;  // in the buckets of ddp_
};

}  // namespace

Result train(Communicator& communicator, const Dataset& data, const Settings& settings,
             Observer* observer) {
  const auto fail = [&](const char* what) {
    throw Error(ErrorKind::usage, fmt::format("rank {}: {}", communicator.rank(), what));
  };
  if (settings.batch == 0) fail("a batch must have at least one sample");
  if (std::find(settings.hidden.begin(), settings.hidden.end(), 0u) != settings.hidden.end())
    fail("a hidden layer must have at least one neuron");
  if (settings.resume && settings.checkpoint.empty()) fail("to resume, name the checkpoint");
  if (data.size() < 5) fail("there must be at least 5 samples, to hold a fifth out");
  return Trainer(communicator, data, settings).run(communicator.rank() == 0 ? observer : nullptr);
}

}  // namespace digits
