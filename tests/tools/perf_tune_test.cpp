// Tests how --explain and --tune evaluate measurements.
#include "perf/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "perf/explain.h"

namespace tutti::perf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Returns samples as if a machine of `costs` had been measured.
std::vector<Sample> samples_of(const MachineCosts& costs) {
  std::vector<Sample> samples;
  for (const Collective what : {Collective::all_reduce, Collective::broadcast})
    for (const std::string_view algorithm : {"one_shot", "ring", "all_pairs", "binomial_tree"})
      for (std::size_t bytes = 64; bytes <= 1 << 20; bytes *= 8)
        samples.push_back({what, algorithm, 2, 2, bytes, 1 << 16, 1, bytes == 512});
  const std::vector<double> times = predict(samples, costs);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i].measured_us = times[i];
  return samples;
}

MachineCosts other_machine() {
  MachineCosts costs;
  costs.links[2] = {600'000, 300'000, 200'000, 90'000};
  costs.step = 40'000;
  costs.error_percent = 10;
  return costs;
}

TEST(PerfFit, FindsCostsThatPredictWhatWasMeasured) {
  const std::vector<Sample> samples = samples_of(other_machine());
  const Fit found = fit(samples, MachineCosts{});
  EXPECT_LE(error_percent(samples, found.predicted_us), 10);
  const double latency = static_cast<double>(found.costs.link(LinkKind::shared_l3).latency);
  EXPECT_NEAR(latency, 600'000, 200'000);
  EXPECT_GT(error_percent(samples, predict(samples, MachineCosts{})), 50) << "before";
}

TEST(PerfFit, FewWrongSamplesDoNotMoveIt) {
  std::vector<Sample> samples = samples_of(other_machine());
  for (std::size_t i = 0; i < samples.size(); i += 8) samples[i].measured_us *= 10;
  const Fit found = fit(samples, MachineCosts{});
  EXPECT_LE(error_percent(samples, found.predicted_us), 15);
}

TEST(PerfTune, ChecksWhatWasNotFitted) {
  const Tuned tuned = tune(samples_of(other_machine()), MachineCosts{});
  ASSERT_EQ(tuned.checked.size(), 8u);
  EXPECT_EQ(tuned.checked[0].bytes, 512u);
  EXPECT_LE(tuned.fit.costs.error_percent, 15);
  EXPECT_TRUE(tuned.better());
  EXPECT_LE(tuned.lost_percent, tuned.lost_built_in_percent);
  const std::string text = format_tuned(tuned);
  EXPECT_THAT(text, AllOf(HasSubstr("Three of four of these 8 predictions"),
                          HasSubstr("all_reduce  one_shot")));
}

TEST(PerfTune, SamplesComeBackFromTextAndDamageIsRefused) {
  const std::vector<Sample> samples = samples_of(MachineCosts{});
  const std::vector<Sample> back = parse_samples(to_text(samples));
  ASSERT_EQ(back.size(), samples.size());
  EXPECT_EQ(back[3].algorithm, samples[3].algorithm);
  EXPECT_EQ(back[3].bytes, samples[3].bytes);
  EXPECT_EQ(back[1].checks, samples[1].checks);
  EXPECT_NEAR(back[3].measured_us, samples[3].measured_us, 1e-9);
  EXPECT_THROW(static_cast<void>(parse_samples("0 ring 2\n")), Error);
  EXPECT_THROW(static_cast<void>(parse_samples("99 ring 2 2 8 64 1.5 0\n")), Error);
  EXPECT_THROW(static_cast<void>(parse_samples("0 rong 2 2 8 64 1.5 0\n")), Error);
}

TEST(PerfTune, RanksAreTwoAsManyAsCoresAndMore) {
  EXPECT_THAT(tune_ranks(1), ElementsAre(2));
  EXPECT_THAT(tune_ranks(2), ElementsAre(2, 4));
  EXPECT_THAT(tune_ranks(4), ElementsAre(2, 4, 8));
  EXPECT_THAT(tune_ranks(64), ElementsAre(2, 8));
}

TEST(PerfExplain, MarksTheChosenAndTheFastestAndSaysHowFarOff) {
  const Explained one{4096,
                      {{"ring", 65536, 2.0, 4.0, true}, {"one_shot", 32768, 3.0, 2.0, false}}};
  const std::string text = format_explained(one);
  EXPECT_THAT(text, HasSubstr("4096 *  ring                      65536"));
  EXPECT_THAT(text, HasSubstr("4096  < one_shot                  32768"));
  EXPECT_THAT(text, HasSubstr("-50\n"));
  EXPECT_THAT(text, HasSubstr("+50\n"));
  EXPECT_THAT(format_explain_summary({one}),
              AllOf(HasSubstr("off by less than 50 %"), HasSubstr("takes 100 % more time")));
}

TEST(PerfExplain, SaysWhereNothingIsPriced) {
  const Explained one{8, {{"ring", 65536, std::nullopt, 4.0, true}}};
  EXPECT_THAT(format_explained(one), HasSubstr(" - "));
  EXPECT_THAT(format_explain_summary({one}), HasSubstr("not priced"));
}

}  // namespace
}  // namespace tutti::perf
