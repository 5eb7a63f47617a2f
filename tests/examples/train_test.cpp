#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "files.h"
#include "learner.h"
#include "ranks.h"

namespace digits {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tutti::ErrorKind;

Dataset shipped_digits() {
  return load(DIGITS_DATA "/digits-images-idx3-ubyte.gz",
              DIGITS_DATA "/digits-labels-idx1-ubyte.gz");
}

Dataset first_digits(std::size_t count) {
  Dataset data = shipped_digits();
  data.labels.resize(count);
  data.pixels.resize(count * data.pixels_per_image());
  return data;
}

class Recorder final : public Observer {
 public:
  void started(const Start& start) override { start_ = start; }
  void stepped(std::size_t, std::size_t, std::size_t) override { ++steps_; }
  void finished_epoch(std::size_t, const Result&) override { ++epochs_; }

  Start start_{};
  std::size_t steps_ = 0;
  std::size_t epochs_ = 0;
};

TEST(Train, TwoRanksLearnToReadTheShippedDigits) {
  Settings settings;
  settings.epochs = 15;
  Recorder recorder;
  const Result result = train_on_threads(2, shipped_digits(), settings, &recorder);
  EXPECT_GE(result.accuracy, 0.95);
  EXPECT_EQ(recorder.start_.training, 1438u);
  EXPECT_EQ(recorder.start_.held_out, 359u);
  EXPECT_GE(recorder.start_.buckets, 3u);
  EXPECT_EQ(recorder.start_.ranks, 2);
  EXPECT_EQ(recorder.epochs_, 15u);
  EXPECT_EQ(recorder.steps_, 15u * 23);
}

double relative_difference(double a, double b) { return std::abs(a - b) / std::max(a, b); }

TEST(Train, TheSameGlobalBatchGivesTheSameLossOnAnyNumberOfRanks) {
  const Dataset data = shipped_digits();
  Settings settings;
  settings.epochs = 5;
  const double alone = train_on_threads(1, data, settings, nullptr).loss;
  for (const int ranks : {2, 3, 4})
    EXPECT_LT(relative_difference(train_on_threads(ranks, data, settings, nullptr).loss, alone),
              1e-5)
        << ranks << " ranks";
}

TEST(Train, BatchThatTheRanksCannotShareEvenlyCountsEverySampleOnce) {
  const Dataset data = first_digits(43);  // 35 are for training: with batches of 3, the last has 2
  Settings settings;
  settings.epochs = 3;
  settings.batch = 3;
  const double alone = train_on_threads(1, data, settings, nullptr).loss;
  for (const int ranks : {2, 4, 5})
    EXPECT_LT(relative_difference(train_on_threads(ranks, data, settings, nullptr).loss, alone),
              1e-5)
        << ranks << " ranks";
}

TEST(Train, ResumedTrainingLeavesTheSameBitsAsOneThatWasNeverInterrupted) {
  const Dataset data = first_digits(300);
  const Folder folder;
  Settings settings;
  settings.epochs = 4;
  settings.checkpoint = folder / "straight";
  const Result straight = train_on_threads(2, data, settings, nullptr);

  settings.checkpoint = folder / "interrupted";
  settings.epochs = 1;
  train_on_threads(2, data, settings, nullptr);
  settings.epochs = 4;
  settings.resume = true;
  Recorder recorder;
  const Result resumed = train_on_threads(2, data, settings, &recorder);

  EXPECT_EQ(recorder.start_.epochs_done, 1u);
  EXPECT_EQ(recorder.epochs_, 3u);
  EXPECT_EQ(resumed.loss, straight.loss);
  EXPECT_EQ(resumed.accuracy, straight.accuracy);
  EXPECT_EQ(read_file(folder / "interrupted"), read_file(folder / "straight"));

  // The training is complete, so another number of ranks has nothing left to do.
  const Result again = train_on_threads(3, data, settings, nullptr);
  EXPECT_LT(relative_difference(again.loss, straight.loss), 1e-6);
}

TEST(Learner, AStepThatIsUndoneLeavesTheStateBeforeItAndIsTakenAgainToTheSameBits) {
  const Dataset data = first_digits(200);
  const Settings settings;
  std::vector<tutti::Communicator> alone = tutti::Communicator::in_process(1);
  Learner learner(data, settings, Learner::Kind::recoverable);
  learner.attach(alone.front());
  const auto state = [&] {
    std::vector<float> all(learner.values().begin(), learner.values().end());
    all.insert(all.end(), learner.velocity().begin(), learner.velocity().end());
    all.insert(all.end(), learner.counts().begin(), learner.counts().end());
    return all;
  };
  learner.take_step(0, 0);
  const std::vector<float> before = state();
  learner.take_step(0, 1);
  const std::vector<float> after = state();
  EXPECT_NE(after, before);
  learner.undo_step();
  EXPECT_EQ(state(), before);
  learner.take_step(0, 1);
  EXPECT_EQ(state(), after);
  learner.take_step(0, 2);  // 160 samples are for training: the last batch has 32
  EXPECT_THAT(learner.counts(), testing::Each(1.0f));
  EXPECT_EQ(learner.steps_per_epoch(), 3u);
}

TEST(Train, CheckpointThatCannotBeResumedEndsAllRanksWithTheErrorThatSaysWhy) {
  const Dataset data = first_digits(50);
  const Folder folder;
  Settings settings;
  settings.epochs = 1;
  settings.checkpoint = folder / "state";
  train_on_threads(1, data, settings, nullptr);
  const std::string whole = read_file(settings.checkpoint);

  settings.resume = true;
  write_file(settings.checkpoint, std::string_view(whole).substr(0, whole.size() / 2));
  EXPECT_THAT(message_of(ErrorKind::corrupt, [&] { train_on_threads(3, data, settings, nullptr); }),
              AllOf(HasSubstr(settings.checkpoint), HasSubstr("cut short")));

  write_file(settings.checkpoint, whole);
  settings.hidden = {20};
  EXPECT_THAT(message_of(ErrorKind::usage, [&] { train_on_threads(3, data, settings, nullptr); }),
              HasSubstr("this run 64-20-10"));
}

TEST(Train, SettingsThatCannotBeTrainedWithAreErrors) {
  const Dataset data = first_digits(50);
  const auto message = [&](auto change) {
    Settings settings;
    change(settings);
    return message_of(ErrorKind::usage, [&] { train_on_threads(1, data, settings, nullptr); });
  };
  EXPECT_THAT(message([](Settings& s) { s.batch = 0; }), HasSubstr("batch"));
  EXPECT_THAT(message([](Settings& s) { s.hidden = {8, 0}; }), HasSubstr("hidden layer"));
  EXPECT_THAT(message([](Settings& s) { s.resume = true; }), HasSubstr("name the checkpoint"));
  EXPECT_THAT(message([](Settings& s) { s.buckets.cap_bytes = 0; }), HasSubstr("bucket caps"));
  EXPECT_THAT(message_of(ErrorKind::usage,
                         [] { train_on_threads(1, first_digits(4), Settings{}, nullptr); }),
              HasSubstr("at least 5 samples"));
}

}  // namespace
}  // namespace digits
