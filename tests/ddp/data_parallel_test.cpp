#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include <tutti/ddp.hpp>

#include "ranks.h"

namespace tutti::ddp {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

// A model of three layers. With limits of 128 B its buckets are {4, 3}, {2, 1}, {0}; the second one
// holds doubles.
struct Model {
  std::vector<float> first = std::vector<float>(100, 0.0f);
  std::vector<double> second_weight = std::vector<double>(5, 0.0);
  std::vector<double> second_bias = std::vector<double>(1, 0.0);
  std::vector<float> third_weight = std::vector<float>(16, 0.0f);
  std::vector<float> third_bias = std::vector<float>(3, 0.0f);

  std::vector<Parameter> parameters() {
    return {{"first", first.data(), first.size(), DataType::f32},
            {"second.weight", second_weight.data(), second_weight.size(), DataType::f64},
            {"second.bias", second_bias.data(), second_bias.size(), DataType::f64},
            {"third.weight", third_weight.data(), third_weight.size(), DataType::f32},
            {"third.bias", third_bias.data(), third_bias.size(), DataType::f32}};
  }
};
constexpr std::size_t kParameters = 5;
const auto small_buckets = [] { return Options{{128, 128}, std::chrono::milliseconds{0}}; };

// Returns values whose average is exact, and which reveal a wrong element, step or rank.
double contribution(int rank, int ranks, std::size_t parameter, std::size_t element, int step) {
  return ranks * (rank + 10.0 * static_cast<double>(parameter) + static_cast<double>(element)) +
         ranks * 1000.0 * step;
}

double average(int ranks, std::size_t parameter, std::size_t element, int step) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += contribution(r, ranks, parameter, element, step);
  return sum / ranks;
}

template <typename T>
void fill(const DataParallel& ddp, std::size_t parameter, int rank, int ranks, int step) {
  const std::span<T> gradient = ddp.gradient<T>(parameter);
  for (std::size_t e = 0; e < gradient.size(); ++e)
    gradient[e] = static_cast<T>(contribution(rank, ranks, parameter, e, step));
}

void fill(const DataParallel& ddp, std::size_t parameter, int rank, int ranks, int step) {
  if (ddp.parameters()[parameter].type == DataType::f64)
    fill<double>(ddp, parameter, rank, ranks, step);
  else
    fill<float>(ddp, parameter, rank, ranks, step);
}

template <typename T>
void expect_average(const DataParallel& ddp, std::size_t parameter, int ranks, int step) {
  const std::span<T> gradient = ddp.gradient<T>(parameter);
  for (std::size_t e = 0; e < gradient.size(); ++e)
    ASSERT_EQ(gradient[e], static_cast<T>(average(ranks, parameter, e, step)))
        << "parameter " << parameter << ", element " << e << ", step " << step;
}

void expect_averages(const DataParallel& ddp, int ranks, int step) {
  for (std::size_t i = 0; i < ddp.parameters().size(); ++i)
    if (ddp.parameters()[i].type == DataType::f64)
      expect_average<double>(ddp, i, ranks, step);
    else
      expect_average<float>(ddp, i, ranks, step);
}

TEST(DataParallel, AveragesGradientsOverAllRanksInEveryStep) {
  for (const int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [&](Communicator& communicator) {
      Model model;
      DataParallel ddp(communicator, model.parameters(), small_buckets());
      ASSERT_EQ(ddp.buckets().size(), 3u);
      for (int step = 0; step < 3; ++step) {
        for (std::size_t i = kParameters; i-- > 0;) {
          fill(ddp, i, communicator.rank(), ranks, step);
          ddp.ready(i);
        }
        ddp.finish();
        expect_averages(ddp, ranks, step);
      }
    });
}

TEST(DataParallel, GradientsMayBecomeReadyInAnotherOrderOnEveryRank) {
  constexpr int kRanks = 3;
  on_ranks(kRanks, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    std::vector<std::size_t> order(kParameters);
    std::iota(order.begin(), order.end(), 0u);
    for (int step = 0; step < 120; ++step) {  // all 120 orders, and each rank has a different one
      for (int k = 0; k <= communicator.rank(); ++k)
        std::next_permutation(order.begin(), order.end());
      for (const std::size_t i : order) {
        fill(ddp, i, communicator.rank(), kRanks, step);
        ddp.ready(i);
      }
      ddp.finish();
      expect_averages(ddp, kRanks, step);
    }
  });
}

TEST(DataParallel, BucketStartsWithItsLastGradientAndNeverBeforeTheBucketsBeforeIt) {
  on_ranks(2, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    const auto started_after = [&](std::size_t i) {
      ddp.ready(i);
      return ddp.buckets_started();
    };
    EXPECT_EQ(started_after(4), 0u);
    EXPECT_EQ(started_after(3), 1u);
    EXPECT_EQ(started_after(2), 1u);
    EXPECT_EQ(started_after(0), 1u);  // bucket 2 is complete, bucket 1 is not
    EXPECT_EQ(started_after(1), 3u);
    ddp.finish();
    EXPECT_EQ(ddp.buckets_started(), 0u);
  });
}

TEST(DataParallel, BucketIsAveragedWhileBackwardGoesOn) {
  on_ranks(2, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    EXPECT_EQ(ddp.buckets_done(), 0u);
    for (const std::size_t i : {4u, 3u}) {
      fill(ddp, i, communicator.rank(), 2, 0);
      ddp.ready(i);
    }
    // This stands for backward: no call of tutti advances the bucket.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (ddp.buckets_done() == 0 && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    ASSERT_EQ(ddp.buckets_done(), 1u);
    expect_average<float>(ddp, 4, 2, 0);
    for (const std::size_t i : {2u, 1u, 0u}) ddp.ready(i);
    ddp.finish();
    EXPECT_EQ(ddp.buckets_done(), 0u);
  });
}

TEST(DataParallel, GradientsAreZeroAlignedAndStayWhereTheyAre) {
  on_ranks(2, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    const float* const first = ddp.gradient<float>(0).data();
    for (std::size_t i = 0; i < kParameters; ++i)
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ddp.gradient(i, ddp.parameters()[i].type)) % 64,
                0u);
    EXPECT_EQ(ddp.gradient<float>(0).size(), 100u);
    EXPECT_THAT(ddp.gradient<float>(0), Each(0.0f));
    for (std::size_t i = 0; i < kParameters; ++i) ddp.ready(i);
    ddp.finish();
    EXPECT_EQ(ddp.gradient<float>(0).data(), first);
    const DataParallel moved = std::move(ddp);
    EXPECT_EQ(moved.gradient<float>(0).data(), first);
  });
}

TEST(DataParallel, ReadyTwiceNamesTheParameterTheStepAndTheRankAndChangesNothing) {
  on_ranks(2, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = kParameters; i-- > 0;) {
        fill(ddp, i, communicator.rank(), 2, step);
        ddp.ready(i);
        EXPECT_THAT(message_of(ErrorKind::usage, [&] { ddp.ready(i); }),
                    AllOf(HasSubstr(fmt::format("'{}'", ddp.parameters()[i].name)),
                          HasSubstr("twice"), HasSubstr(fmt::format("step {}", step)),
                          HasSubstr(fmt::format("rank {}", communicator.rank()))));
      }
      ddp.finish();
      expect_averages(ddp, 2, step);
    }
  });
}

TEST(DataParallel, IndexOutOfRangeAndWrongTypeAreErrorsThatSayWhatThereIs) {
  on_ranks(1, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    EXPECT_THAT(message_of(ErrorKind::usage, [&] { ddp.ready(5); }),
                AllOf(HasSubstr("ready(5)"), HasSubstr("5 parameters")));
    EXPECT_THAT(message_of(ErrorKind::usage, [&] { (void)ddp.gradient<float>(99); }),
                HasSubstr("gradient(99)"));
    EXPECT_THAT(message_of(ErrorKind::usage, [&] { (void)ddp.gradient<float>(1); }),
                AllOf(HasSubstr("'second.weight' (5 x f64)"), HasSubstr("as f32")));
  });
}

TEST(DataParallel, FinishNamesExactlyTheGradientsThatAreNotReadyAndCanBeCalledAgain) {
  on_ranks(2, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    for (std::size_t i = 0; i < kParameters; ++i) fill(ddp, i, communicator.rank(), 2, 0);
    for (const std::size_t i : {4u, 2u, 0u}) ddp.ready(i);
    EXPECT_THAT(message_of(ErrorKind::usage, [&] { ddp.finish(); }),
                AllOf(HasSubstr(fmt::format("rank {}", communicator.rank())),
                      HasSubstr("2 of 5 gradients are not ready: 'second.weight' (parameter 1), "
                                "'third.weight' (parameter 3)."),
                      Not(HasSubstr("'first'")), HasSubstr("step 0")));
    ddp.ready(1);
    ddp.ready(3);
    ddp.finish();
    expect_averages(ddp, 2, 0);
  });
}

TEST(DataParallel, RankWhosePeersLeaveInTheMiddleOfAStepGetsAnErrorThatNamesTheBucket) {
  const auto errors = run_ranks(2, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(),
                     {{128, 128}, std::chrono::milliseconds{20'000}});
    for (std::size_t i = kParameters; i-- > 0;)
      if (communicator.rank() == 0 || i > 2) ddp.ready(i);
    ddp.finish();  // rank 1 has forgotten three gradients, and ends here
  });
  ASSERT_TRUE(errors[0] && errors[1]);
  EXPECT_EQ(errors[1]->kind(), ErrorKind::usage);
  EXPECT_NE(errors[0]->kind(), ErrorKind::usage);
  EXPECT_THAT(errors[0]->what(), AllOf(HasSubstr("step 0, bucket 1 of 3"),
                                       HasSubstr("'second.bias' to 'second.weight'")));
}

TEST(DataParallel, EveryCallAfterTheCommunicatorHasFailedThrowsItsError) {
  const auto errors = run_ranks(2, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    if (communicator.rank() == 1) return;
    const auto step = [&] {  // ready() throws, too, if the end of rank 1 is known by then
      for (std::size_t i = 0; i < kParameters; ++i) ddp.ready(i);
      ddp.finish();
    };
    EXPECT_THROW(step(), Error);
    ASSERT_TRUE(communicator.failure());
    const ErrorKind kind = communicator.failure()->kind();
    (void)message_of(kind, [&] { ddp.ready(0); });
    (void)message_of(kind, [&] { ddp.finish(); });
    (void)message_of(kind, [&] { ddp.broadcast_parameters(); });
    (void)message_of(kind, [&] { ddp.check_parameters(); });
  });
  EXPECT_FALSE(errors[0]);
  EXPECT_FALSE(errors[1]);
}

TEST(DataParallel, MayBeDestroyedInTheMiddleOfAStep) {
  on_ranks(2, [](Communicator& communicator) {
    Model model;
    {
      DataParallel ddp(communicator, model.parameters(), small_buckets());
      for (const std::size_t i : {4u, 3u, 2u, 1u}) ddp.ready(i);
      EXPECT_EQ(ddp.buckets_started(), 2u);
    }
    communicator.barrier();
  });
}

struct Call {
  std::vector<Parameter> parameters;
  Options options;
};

// Builds DataParallel on three ranks, with `change` applied on rank 1; all of them must throw
// mismatch.
template <typename Change>
std::string mismatch_message(Change change) {
  std::string first;
  const auto errors = run_ranks(3, [&](Communicator& communicator) {
    Model model;
    Call call{model.parameters(), {}};
    if (communicator.rank() == 1) change(call);
    DataParallel ddp(communicator, call.parameters, call.options);
  });
  for (std::size_t r = 0; r < errors.size(); ++r) {
    EXPECT_TRUE(errors[r]);
    if (!errors[r]) continue;
    EXPECT_EQ(to_string(errors[r]->kind()), "mismatch") << errors[r]->what();
    EXPECT_THAT(errors[r]->what(), HasSubstr(fmt::format("rank {}: the ranks", r)));
    first = errors[r]->what();
  }
  return first;
}

TEST(DataParallel, RanksThatDifferInANameACountOrATypeAreToldWhichParameterAndWhatEachHas) {
  EXPECT_THAT(mismatch_message([](Call& s) { s.parameters[3].name = "other"; }),
              HasSubstr("parameter 3: ranks 0, 2: 'third.weight' (16 x f32); rank 1: 'other' (16 x "
                        "f32)"));
  EXPECT_THAT(mismatch_message([](Call& s) { s.parameters[1].count = 4; }),
              HasSubstr("rank 1: 'second.weight' (4 x f64)"));
  EXPECT_THAT(mismatch_message([](Call& s) { s.parameters[4].type = DataType::bf16; }),
              HasSubstr("rank 1: 'third.bias' (3 x bf16)"));
  EXPECT_THAT(mismatch_message([](Call& s) { std::swap(s.parameters[0], s.parameters[4]); }),
              HasSubstr("parameter 0: ranks 0, 2: 'first' (100 x f32); rank 1: 'third.bias'"));
}

TEST(DataParallel, RanksThatDifferInTheNumberOfParametersAreToldTheFirstThatIsMissing) {
  EXPECT_THAT(mismatch_message([](Call& s) { s.parameters.pop_back(); }),
              HasSubstr("parameter 4: ranks 0, 2: 'third.bias' (3 x f32); rank 1: none, there are "
                        "4"));
  EXPECT_THAT(mismatch_message([](Call& s) { s.parameters.clear(); }),
              HasSubstr("rank 1: none, there are 0"));
}

TEST(DataParallel, RanksWithDifferentBucketCapsAreToldThem) {
  EXPECT_THAT(mismatch_message([](Call& s) { s.options.buckets.cap_bytes = 4096; }),
              HasSubstr("ranks 0, 2: 26214400 B, first 1048576 B; rank 1: 4096 B, first 1048576 "
                        "B"));
}

TEST(DataParallel, ParameterThatCannotBeUsedIsNamedWithTheReason) {
  on_ranks(1, [](Communicator& communicator) {
    float value = 0;
    const auto message = [&](std::vector<Parameter> parameters) {
      return message_of(ErrorKind::usage,
                        [&] { DataParallel(communicator, std::move(parameters)); });
    };
    const Parameter good{"good", &value, 1, DataType::f32};
    EXPECT_THAT(message({good, {"bad", nullptr, 1, DataType::f32}}),
                AllOf(HasSubstr("parameter 1 ('bad')"), HasSubstr("null pointer")));
    EXPECT_THAT(message({good, good}), HasSubstr("parameter 1 ('good') has the name of parameter "
                                                 "0"));
    EXPECT_THAT(message({{"", &value, 1, DataType::f32}}), HasSubstr("needs a name"));
    EXPECT_THAT(message({{"whole", &value, 1, DataType::int32}}), HasSubstr("type int32"));
    DataParallel still_usable(communicator, {good});
  });
}

TEST(DataParallel, WorksWithoutParametersAndWithEmptyOnes) {
  on_ranks(2, [](Communicator& communicator) {
    DataParallel none(communicator, {});
    none.broadcast_parameters();
    none.check_parameters();
    none.finish();
    DataParallel empty(communicator, {{"empty", nullptr, 0, DataType::f32}});
    empty.check_parameters();
    EXPECT_TRUE(empty.gradient<float>(0).empty());
    empty.ready(0);
    empty.finish();
  });
}

TEST(DataParallel, BroadcastGivesEveryRankTheRootsParameters) {
  on_ranks(3, [](Communicator& communicator) {
    Model model;
    for (float& value : model.first) value = static_cast<float>(communicator.rank());
    model.second_bias[0] = communicator.rank() + 0.5;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    ddp.broadcast_parameters(2);
    EXPECT_THAT(model.first, Each(2.0f));
    EXPECT_EQ(model.second_bias[0], 2.5);
    ddp.check_parameters();
  });
}

TEST(DataParallel, CheckSeesASingleBitAndNamesTheFirstParameterAndTheRanksThatDiffer) {
  const auto errors = run_ranks(4, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    ddp.check_parameters();
    if (communicator.rank() == 2) model.third_weight[15] = -0.0f;  // an equal value with other bits
    if (communicator.rank() == 2) model.third_bias[0] = 1.0f;
    ddp.check_parameters();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::mismatch);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("'third.weight' (parameter 3, the first of 2 that differ)"),
                      HasSubstr("ranks 0, 1, 3: digest "), HasSubstr("; rank 2: digest ")));
  }
}

TEST(DataParallel, AfterAMismatchOfParametersTheyCanBeBroadcastAndTrainingGoesOn) {
  on_ranks(2, [](Communicator& communicator) {
    Model model;
    model.first[7] = static_cast<float>(communicator.rank());
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    (void)message_of(ErrorKind::mismatch, [&] { ddp.check_parameters(); });
    ddp.broadcast_parameters();
    ddp.check_parameters();
  });
}

TEST(DataParallel, ParametersCannotBeSentOrCheckedInTheMiddleOfAStep) {
  on_ranks(2, [](Communicator& communicator) {
    Model model;
    DataParallel ddp(communicator, model.parameters(), small_buckets());
    ddp.ready(0);
    EXPECT_THAT(message_of(ErrorKind::usage, [&] { ddp.broadcast_parameters(); }),
                AllOf(HasSubstr("broadcast_parameters()"), HasSubstr("call finish() first")));
    (void)message_of(ErrorKind::usage, [&] { ddp.check_parameters(); });
    for (std::size_t i = 1; i < kParameters; ++i) ddp.ready(i);
    ddp.finish();
    ddp.check_parameters();
  });
}

}  // namespace
}  // namespace tutti::ddp
