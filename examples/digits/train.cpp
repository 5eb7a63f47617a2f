#include "train.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "checkpoint.h"
#include "learner.h"

namespace digits {
namespace {

using tutti::Communicator;
using tutti::Error;
using tutti::ErrorKind;

class Trainer {
 public:
  Trainer(Communicator& communicator, const Dataset& data, const Settings& settings)
      : communicator_(communicator), settings_(settings), learner_(data, settings) {
    learner_.attach(communicator);
  }

  Result run(Observer* observer) {
    std::size_t epoch = settings_.resume ? resume() : 0;
    learner_.ddp().broadcast_parameters();
    if (observer)
      observer->started({learner_.split().training.size(), learner_.split().held_out.size(),
                         learner_.values().size(), learner_.ddp().buckets().size(), epoch,
                         communicator_.size()});
    Result result = learner_.measure();
    for (; epoch < settings_.epochs; ++epoch) {
      train_epoch(epoch, observer);
      learner_.ddp().check_parameters();
      result = learner_.measure();
      if (observer) observer->finished_epoch(epoch, result);
      if (!settings_.checkpoint.empty() && communicator_.rank() == 0) save_state(epoch + 1);
    }
    return result;
  }

 private:
  void train_epoch(std::size_t epoch, Observer* observer) {
    const std::size_t steps = learner_.steps_per_epoch();
    for (std::size_t step = 0; step < steps; ++step) {
      learner_.take_step(epoch, step);
      if (observer) observer->stepped(epoch, step + 1, steps);
    }
  }

  Recipe recipe() const {
    return {{learner_.widths().begin(), learner_.widths().end()},
            settings_.seed,
            settings_.batch,
            settings_.learning_rate,
            settings_.momentum};
  }

  void save_state(std::size_t epochs_done) {
    const std::span<const float> values = learner_.values(), velocity = learner_.velocity();
    save(settings_.checkpoint, {recipe(),
                                epochs_done,
                                {values.begin(), values.end()},
                                {velocity.begin(), velocity.end()}});
  }

  /// Rank 0 reads the file and broadcasts the state, since the other ranks may have no such file.
  /// broadcast_parameters() broadcasts the parameters later.
  std::size_t resume() {
    std::int64_t epochs_done = 0;
    if (communicator_.rank() == 0) {
      Checkpoint checkpoint = load(settings_.checkpoint, recipe());
      if (checkpoint.values.size() != learner_.values().size())
        throw Error(
            ErrorKind::corrupt,
            fmt::format("checkpoint '{}' has {} parameters, its layers have {}",
                        settings_.checkpoint, checkpoint.values.size(), learner_.values().size()));
      std::copy(checkpoint.values.begin(), checkpoint.values.end(), learner_.values().begin());
      std::copy(checkpoint.velocity.begin(), checkpoint.velocity.end(),
                learner_.velocity().begin());
      epochs_done = static_cast<std::int64_t>(checkpoint.epochs_done);
    }
    communicator_.broadcast(std::span(&epochs_done, 1), 0);
    communicator_.broadcast(learner_.velocity(), 0);
    return static_cast<std::size_t>(epochs_done);
  }

  Communicator& communicator_;
  const Settings& settings_;
  Learner learner_;
};

}  // namespace

void check(const Dataset& data, const Settings& settings, const std::string& who) {
  const auto fail = [&](const char* what) {
    throw Error(ErrorKind::usage, fmt::format("{}: {}", who, what));
  };
  if (settings.batch == 0) fail("a batch must have at least one sample");
  if (std::find(settings.hidden.begin(), settings.hidden.end(), 0u) != settings.hidden.end())
    fail("a hidden layer must have at least one neuron");
  if (settings.resume && settings.checkpoint.empty()) fail("to resume, name the checkpoint");
  if (data.size() < 5) fail("there must be at least 5 samples, to hold a fifth out");
}

Result train(Communicator& communicator, const Dataset& data, const Settings& settings,
             Observer* observer) {
  check(data, settings, fmt::format("rank {}", communicator.rank()));
  return Trainer(communicator, data, settings).run(communicator.rank() == 0 ? observer : nullptr);
}

}  // namespace digits
