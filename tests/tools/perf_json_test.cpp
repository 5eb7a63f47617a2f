#include "perf/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tutti/error.hpp>

namespace tutti::perf {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  return names;
}

Report example() {
  Report report;
  report.arguments = {"tutti-perf", "all_reduce"};
  report.start_time = "2026-11-21 05:22:07";
  report.devices = {{0, 3, 12, "host", 1, "cpu"}};
  const Timing out_of_place{0.1 + 0.2, 1e-9, 2, 0, 20, 57.25, std::nullopt};
  const Timing in_place{1, 2, 3, std::nullopt, 40, std::nullopt, std::nullopt};
  report.rows = {{8, 2, "float", "sum", -1, out_of_place, in_place, 0.057, {}}};
  report.summary = {0, 1.5, 0, 0};
  return report;
}

TEST(PerfJson, HasTheKeysOfNcclTestsInTheirOrder) {
  const Json json = Json::parse(to_json(example(), Options{}, "1.2.3"));
  EXPECT_THAT(keys(json),
              testing::ElementsAre("version", "start_time", "args", "env", "nccl_version",
                                   "tutti_version", "config", "results", "out_of_bounds",
                                   "average_bus_bandwidth", "errors", "end_time"));
  EXPECT_THAT(
      keys(json["config"]),
      testing::ElementsAre("nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "step_bytes",
                           "warmup_iters", "iterations", "aggregated_iterations", "validation",
                           "graph", "blocking_collectives", "per_iter_timing", "per_iter_skip",
                           "parallel_init", "devices"));
  EXPECT_THAT(keys(json["config"]["devices"][0]),
              testing::ElementsAre("rank", "group", "pid", "hostname", "device", "device_hex",
                                   "device_info"));
  EXPECT_THAT(keys(json["results"][0]),
              testing::ElementsAre("size", "count", "type", "redop", "root", "out_of_place",
                                   "in_place", "actual_iterations", "experiment_name", "limit_us"));
  EXPECT_THAT(keys(json["results"][0]["in_place"]),
              testing::ElementsAre("time", "alg_bw", "bus_bw", "nwrong"));
  EXPECT_EQ(json["config"]["devices"][0]["group"], 3);
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["nccl_version"], 10203);
}

TEST(PerfJson, NamesTheGpusAndWhoMovesTheBytes) {
  Report report = example();
  report.devices.front().bus = "0000:17:00";
  report.mover = Mover::kernels;
  Options options;
  options.gpus = 2;
  const Json config = Json::parse(to_json(report, options, "1.2.3"))["config"];
  EXPECT_EQ(config["ngpus"], 2);
  EXPECT_EQ(config["devices"][0]["device_hex"], "0000:17:00");
  EXPECT_EQ(config["moved_by"], "kernels");
  report.mover = Mover::host_transfers;
  EXPECT_EQ(Json::parse(to_json(report, options, "1.2.3"))["config"]["moved_by"], "host");
}

TEST(PerfJson, KeepsFullPrecisionAndWritesValuesAsNcclTestsDoes) {
  const Json json = Json::parse(to_json(example(), Options{}, "1.2.3"));
  const Json& row = json["results"][0];
  EXPECT_EQ(row["out_of_place"]["time"].get<double>(), 0.1 + 0.2);
  EXPECT_EQ(row["out_of_place"]["alg_bw"].get<double>(), 1e-9);
  EXPECT_EQ(row["out_of_place"]["one_way_ns"].get<double>(), 57.25);
  EXPECT_EQ(row["root"], "    -1");
  EXPECT_TRUE(row["in_place"]["nwrong"].is_null());
  EXPECT_EQ(row["actual_iterations"], 40);
  EXPECT_EQ(json["out_of_bounds"]["okay"], "true");
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "unchecked");
  EXPECT_EQ(json["average_bus_bandwidth"]["bandwidth"], 1.5);
}

TEST(PerfJson, HasTheTimesOfIterationsAsNcclTestsDoes) {
  Report report = example();
  Row& row = report.rows[0];
  row.out_of_place.per_iteration = IterationTimes{1, {9, 4, 5}, {{9, 4, 3}, {8, 2, 5}}};
  Options options;
  options.per_iteration = options.cpu_time = true;
  options.skipped_iterations = 1;
  options.aggregated = 7;
  options.blocking = Blocking::wait;
  options.min_bus_gb_s = 100;
  const Json json = Json::parse(to_json(report, options, "1.2.3"));
  const Json& times = json["results"][0]["out_of_place_per_iter"];
  EXPECT_THAT(keys(times), testing::ElementsAre("skipped_iterations", "min_us", "max_us", "avg_us",
                                                "p50_us", "p95_us", "p99_us", "stdev_us", "cv_pct",
                                                "times_us", "per_process_max_times_us"));
  EXPECT_EQ(times["avg_us"], 4.5);
  EXPECT_EQ(times["times_us"], (std::vector<double>{9, 4, 5}));
  EXPECT_EQ(times["per_process_max_times_us"][1], (std::vector<double>{8, 2, 5}));
  EXPECT_THAT(keys(json["results"][0]["in_place"]),
              testing::ElementsAre("cpu_time", "alg_bw", "bus_bw", "nwrong"));
  EXPECT_EQ(json["config"]["per_iter_timing"], "true");
  EXPECT_EQ(json["config"]["per_iter_skip"], 1);
  EXPECT_EQ(json["config"]["aggregated_iterations"], 7);
  EXPECT_EQ(json["config"]["blocking_collectives"], "true");
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "false");
}

TEST(PerfJson, TellsNothingOfTheEnvironmentThatDoesNotBearOnTheResult) {
  ::setenv("TUTTI_TEST_SHOWN", "1", 1);
  ::setenv("SOME_PASSWORD", "secret", 1);
  ::setenv("TUTTI_SECRET", "a secret of the job", 1);
  const std::string text = to_json(example(), Options{}, "1.2.3");
  EXPECT_NE(text.find("TUTTI_TEST_SHOWN=1"), std::string::npos);
  EXPECT_EQ(text.find("secret"), std::string::npos);
  ::unsetenv("TUTTI_TEST_SHOWN");
  ::unsetenv("SOME_PASSWORD");
  ::unsetenv("TUTTI_SECRET");
}

TEST(PerfJson, AnArgumentMayHoldAnyBytes) {
  Report report = example();
  report.arguments.push_back("\xff\"\n");
  EXPECT_TRUE(Json::accept(to_json(report, Options{}, "1.2.3")));
}

TEST(PerfJson, AnExistingFileIsKeptAndABadPathIsRefusedAtOnce) {
  const std::string path = testing::TempDir() + "perf_json." + std::to_string(::getpid());
  OutputFile("-J", path).write("first");
  OutputFile second("-J", path);
  second.write("second");
  EXPECT_EQ(second.path(), path + ".0");
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "first");
  std::remove(path.c_str());
  std::remove((path + ".0").c_str());
  EXPECT_THROW(OutputFile("-J", "/nonexistent/folder/file"), Error);
}

TEST(PerfJson, GoesToADeviceAndToNoFileBesideIt) {
  OutputFile full("-J", "/dev/full");
  EXPECT_EQ(full.path(), "/dev/full");
  EXPECT_THROW(full.write("too much"), Error);
}

}  // namespace
}  // namespace tutti::perf
