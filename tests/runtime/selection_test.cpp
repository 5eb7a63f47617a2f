// Tests of the choice of algorithms, through the public API.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include <tutti/schedule.hpp>

#include "collectives/planning/tuning_file.h"
#include "processes.h"
#include "threads.h"

namespace tutti::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

namespace fs = std::filesystem;

class Selection : public testing::Test {
 protected:
  Selection() { fs::create_directories(folder_); }
  ~Selection() override { fs::remove_all(folder_); }

  static Config config() {
    Config config = quick_config("shm");
    config.tuning_file = "none";
    return config;
  }

  std::string file_with(const MachineCosts& costs, const std::string& name) const {
    write_tuning_file(folder_ / name, costs, this_machine());
    return folder_ / name;
  }

  /// Runs `body` on ranks that share a store, each with a configuration of its own.
  static Outcomes run_each(const std::vector<Config>& configs,
                           const std::function<void(Communicator&)>& body) {
    Outcomes outcomes(configs.size());
    const auto store = std::make_shared<MemoryStore>();
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < configs.size(); ++rank)
      threads.emplace_back([&, rank] {
        outcomes[rank] = outcome_of([&] {
          Communicator comm = Communicator::create(store, static_cast<int>(rank),
                                                   static_cast<int>(configs.size()), configs[rank]);
          body(comm);
        });
      });
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  static std::string chosen(const std::vector<AlgorithmPrice>& prices) {
    std::string name;
    for (const AlgorithmPrice& price : prices)
      if (price.chosen) name += price.algorithm;
    return name;
  }

  const fs::path folder_ = fs::temp_directory_path() / fmt::format("tutti-selection-{}", getpid());
};

TEST_F(Selection, PricesAreTheSameOnAllRanksWhateverTheirFilesSay) {
  MachineCosts far;
  far.error_percent = 0;
  for (LinkCosts& link : far.links) link.latency = 50'000'000;
  std::vector<Config> configs(4, config());
  configs[0].tuning_file = file_with(far, "far.json");
  configs[1].tuning_file = file_with(MachineCosts{}, "near.json");
  configs[2].tuning_file = folder_ / "is not there";
  std::mutex mutex;
  std::vector<std::vector<AlgorithmPrice>> all;
  EXPECT_THAT(run_each(configs,
                       [&](Communicator& comm) {
                         auto prices = comm.prices(Collective::all_reduce, 16, DataType::f32);
                         std::vector<float> data(16, 1);
                         comm.all_reduce(std::span(data));
                         EXPECT_EQ(data[0], 4);
                         const std::lock_guard lock(mutex);
                         all.push_back(std::move(prices));
                       }),
              Each(IsEmpty()));
  ASSERT_EQ(all.size(), 4u);
  for (const auto& prices : all) {
    ASSERT_EQ(prices.size(), all[0].size());
    EXPECT_EQ(chosen(prices), "one_shot");
    for (std::size_t i = 0; i < prices.size(); ++i) {
      EXPECT_EQ(prices[i].algorithm, all[0][i].algorithm);
      EXPECT_EQ(prices[i].predicted_us, all[0][i].predicted_us);
    }
    EXPECT_GT(prices[0].predicted_us, 50) << "one of rank 0's latencies";
  }
}

TEST_F(Selection, ACallIsExplainedAsItIsCarriedOut) {
  EXPECT_THAT(
      run_ranks(
          2, config(),
          [](Communicator& comm) {
            const std::string said =
                comm.explain(Collective::all_reduce, 64, DataType::f32, Op::max);
            EXPECT_THAT(
                said,
                StartsWith("all_reduce(64 x f32, max) by algorithm " +
                           chosen(comm.prices(Collective::all_reduce, 64, DataType::f32, Op::max)) +
                           ", in messages of "));
            EXPECT_THAT(said, HasSubstr(fmt::format("\nall_reduce, rank {} of 2: ", comm.rank())));
            EXPECT_THAT(said, HasSubstr("lane 0, "));
            EXPECT_THROW(comm.explain(Collective::broadcast, 1, DataType::f32, Op::sum, 2), Error);
            EXPECT_THAT(comm.explain(Collective::reduce, 4, DataType::f32, Op::premul_sum, 1),
                        StartsWith("reduce(4 x f32, premul_sum, root 1) by algorithm "));
          }),
      Each(IsEmpty()));
}

TEST_F(Selection, FileOfRank0ThatIsNamedAndWrongEndsTheStartOfAllRanks) {
  std::ofstream(folder_ / "wrong.json") << "{\n";
  std::vector<Config> configs(3, config());
  configs[0].tuning_file = folder_ / "wrong.json";
  EXPECT_THAT(run_each(configs, [](Communicator&) {}),
              Each(AllOf(StartsWith("usage: rank 0: "), HasSubstr("wrong.json:2:"))));
}

TEST_F(Selection, FileThatIsMerelyThereAndWrongIsAWarning) {
  fs::create_directories(folder_ / "tutti");
  std::ofstream(folder_ / "tutti" / "tuning.json") << "{}";
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string old = before != nullptr ? before : "";
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  std::string log;
  Config with_log = quick_config();
  with_log.log_sink = [&](LogLevel, std::string_view line) { log += line; };
  EXPECT_EQ(Communicator::in_process(2, with_log).size(), 2u);
  if (before != nullptr)
    setenv("XDG_CACHE_HOME", old.c_str(), 1);
  else
    unsetenv("XDG_CACHE_HOME");
  EXPECT_THAT(log, AllOf(HasSubstr("built-in costs"), HasSubstr("lacks the field \"format\"")));
}

// One home is a folder that a service may not read, the other is a link to itself.
TEST_F(Selection, HomeThatCannotBeReadIsAsGoodAsOneWithoutAFile) {
  const fs::path locked = folder_ / "locked", circle = folder_ / "circle";
  fs::create_directories(locked);
  fs::permissions(locked, fs::perms::none);
  fs::create_symlink(circle, circle);
  for (const fs::path& home : {locked, circle}) {
    Processes ranks(2, [&, port = unused_port()](int rank) {
      unsetenv("XDG_CACHE_HOME");
      setenv("HOME", home.c_str(), 1);
      if (geteuid() == 0 && setuid(65534) != 0) _exit(9);  // Root may read everything.
      set_environment(rank, 2, port);
      Communicator::from_env(quick_config()).barrier();
    });
    for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << home;
  }
  fs::permissions(locked, fs::perms::owner_all);
}

TEST_F(Selection, ProgramsFunctionIsAskedAndItsChoiceTaken) {
  Config asked = config();
  asked.algorithm = "recursive_doubling";
  asked.select = [](const SelectQuery& query) -> std::string {
    EXPECT_EQ(query.ranks, 3);
    EXPECT_EQ(query.bytes, query.count * size_of(query.type));
    return query.what == Collective::all_reduce && query.bytes >= 4096 ? "ring" : "";
  };
  EXPECT_THAT(
      run_ranks(3, asked,
                [](Communicator& comm) {
                  const auto name = [&](std::size_t count) {
                    return chosen(comm.prices(Collective::all_reduce, count, DataType::f32));
                  };
                  EXPECT_EQ(name(1024), "ring");
                  EXPECT_EQ(name(1023), "recursive_doubling") << "left to the setting";
                  std::vector<float> data(1024, 1);
                  comm.all_reduce(std::span(data));
                  EXPECT_THAT(data, AllAre(3.0F));
                }),
      Each(IsEmpty()));
}

TEST_F(Selection, ProgramsFunctionMayNameTheProgramsOwnAlgorithm) {
  Config asked = config();
  asked.select = [](const SelectQuery& query) {
    EXPECT_NE(query.what, Collective::all_gather) << "of a split, which is none of the program";
    return query.what == Collective::broadcast ? "mine" : "";
  };
  EXPECT_THAT(run_ranks(2, asked,
                        [](Communicator& comm) {
                          int planned = 0;
                          comm.add_algorithm("mine", [&](const PlanRequest& request) {
                            ++planned;
                            ScheduleBuilder plan(request, 1);
                            if (request.rank == request.root)
                              plan.lane().copy_send(0, {1 - request.rank});
                            else
                              plan.lane().receive(request.root, 0);
                            return std::move(plan).finish();
                          });
                          std::vector<int> data(10, comm.rank() + 1);
                          comm.broadcast(std::span(data), 1);
                          EXPECT_THAT(data, AllAre(2));
                          EXPECT_GT(planned, 0);
                          EXPECT_THAT(
                              comm.explain(Collective::broadcast, 10, DataType::int32, Op::sum, 1),
                              StartsWith("broadcast(10 x int32, root 1) by algorithm mine, "));
                          comm.dup();
                        }),
              Each(IsEmpty()));
}

TEST_F(Selection, NameThatIsUnknownAndAFunctionThatThrowsAreUsage) {
  Config wrong = config();
  wrong.select = [](const SelectQuery& query) -> std::string {
    if (query.what == Collective::barrier) throw std::runtime_error("no idea");
    if (query.what == Collective::broadcast) throw 5;
    return "rong";
  };
  EXPECT_THAT(run_ranks(2, wrong,
                        [](Communicator& comm) {
                          std::vector<float> data(4);
                          const auto reduced =
                              outcome_of([&] { comm.all_reduce(std::span(data)); });
                          EXPECT_THAT(reduced, AllOf(StartsWith("usage: "), HasSubstr("'rong'")));
                          EXPECT_THAT(reduced, HasSubstr("Config::select named it"));
                          EXPECT_THAT(outcome_of([&] { comm.barrier(); }),
                                      AllOf(StartsWith("usage: barrier"), HasSubstr("no idea")));
                          EXPECT_THAT(outcome_of([&] { comm.broadcast(std::span(data), 0); }),
                                      AllOf(StartsWith("usage: broadcast"),
                                            HasSubstr("something that is no std::exception")));
                          EXPECT_THAT(outcome_of([&] {
                                        comm.prices(static_cast<Collective>(99), 4, DataType::f32);
                                      }),
                                      AllOf(StartsWith("usage"), HasSubstr("no collective 99")));
                        }),
              Each(IsEmpty()));
}

TEST_F(Selection, RanksWhoseFunctionsDisagreeAreToldWhichAlgorithmEachTook) {
  std::vector<Config> configs(2, config());
  configs[0].select = [](const SelectQuery&) { return "ring"; };
  configs[1].select = [](const SelectQuery&) { return "one_shot"; };
  const Outcomes outcomes = run_each(configs, [](Communicator& comm) {
    std::vector<float> data(4);
    comm.all_reduce(std::span(data));
    comm.barrier();
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("algorithm ring"),
                                   HasSubstr("algorithm one_shot"),
                                   HasSubstr("Give every rank the same algorithms"))));
}

TEST_F(Selection, CallsOwnOptionGoesBeforeTheFunction) {
  Config asked = config();
  asked.select = [](const SelectQuery&) { return "no such algorithm"; };
  EXPECT_THAT(run_ranks(2, asked,
                        [](Communicator& comm) {
                          std::vector<float> data(4, 1);
                          comm.all_reduce(std::span(data), Op::sum,
                                          {.timeout = {}, .algorithm = "ring"});
                          EXPECT_THAT(data, AllAre(2.0F));
                        }),
              Each(IsEmpty()));
}

TEST_F(Selection, ManyRanksHaveCandidatesWithoutPrices) {
  Config in_process = quick_config();
  in_process.tuning_file = "none";
  auto ranks = Communicator::in_process(17, in_process);
  const auto prices = ranks[3].prices(Collective::all_reduce, 4, DataType::f32);
  EXPECT_EQ(chosen(prices), "recursive_doubling");
  EXPECT_EQ(prices.size(), 9u);
  for (const AlgorithmPrice& price : prices) EXPECT_EQ(price.predicted_us, std::nullopt);
}

}  // namespace
}  // namespace tutti::test
