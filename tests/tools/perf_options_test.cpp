#include "perf/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <tutti/error.hpp>

namespace tutti::perf {
namespace {

Options parsed(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tutti-perf");
  return parse(arguments).value();
}

TEST(PerfOptions, SizesAreBytesOrPowersOf1024) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("8"), 8u);
  EXPECT_EQ(parse_size("1K"), 1024u);
  EXPECT_EQ(parse_size("1.5k"), 1536u);
  EXPECT_EQ(parse_size("3b"), 3u);
  for (const char* const text : {"2kb", "2KB", "2Ki", "2KiB"}) EXPECT_EQ(parse_size(text), 2048u);
  EXPECT_EQ(parse_size("64M"), 64u << 20);
  EXPECT_EQ(parse_size("1G"), std::size_t{1} << 30);
  EXPECT_EQ(parse_size("2t"), std::size_t{2} << 40);
}

TEST(PerfOptions, WhatIsNoSizeIsRefused) {
  for (const char* text :
       {"", "K", "-8", "8ib", "8KBB", "8bK", "1 K", "x", "0x10", "1e3", "nan", "99999999T"})
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
}

TEST(PerfOptions, DefaultsAreThoseOfNcclTests) {
  const Options options = parsed({});
  EXPECT_EQ(options.what, Operation::all_reduce);
  EXPECT_EQ(options.min_bytes, 32u << 20);
  EXPECT_EQ(options.max_bytes, 32u << 20);
  EXPECT_EQ(options.step_bytes, 1u << 20);
  EXPECT_EQ(options.step_factor, 1u);
  EXPECT_EQ(options.warmup_iterations, 1);
  EXPECT_EQ(options.checks, 1);
  EXPECT_EQ(options.ops, std::vector{Op::sum});
  EXPECT_EQ(options.types, std::vector{DataType::f32});
  EXPECT_EQ(options.root, 0);
  EXPECT_EQ(options.average, Average::mean);
}

TEST(PerfOptions, TakesTheCommandLinesOfNcclTests) {
  const Options options = parsed({"reduce_scatter_perf",
                                  "-b",
                                  "8",
                                  "-e",
                                  "256M",
                                  "-f",
                                  "2",
                                  "-n",
                                  "5",
                                  "-w",
                                  "2",
                                  "-c",
                                  "0",
                                  "-o",
                                  "all",
                                  "-d",
                                  "all",
                                  "-r",
                                  "all",
                                  "-a",
                                  "3",
                                  "-J",
                                  "x.json"});
  EXPECT_EQ(options.what, Operation::reduce_scatter);
  EXPECT_EQ(options.iterations, 5);
  EXPECT_EQ(options.checks, 0);
  EXPECT_EQ(options.ops,
            (std::vector{Op::sum, Op::prod, Op::max, Op::min, Op::avg, Op::premul_sum}));
  EXPECT_EQ(options.types,
            (std::vector{DataType::int8, DataType::uint8, DataType::int32, DataType::uint32,
                         DataType::int64, DataType::uint64, DataType::f16, DataType::f32,
                         DataType::f64, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2}));
  EXPECT_EQ(options.root, std::nullopt);
  EXPECT_EQ(options.average, Average::max);
  EXPECT_EQ(options.json_path, "x.json");
  EXPECT_EQ(sizes(options).size(), 26u);
}

TEST(PerfOptions, SizesGoFromTheSmallestToTheLargest) {
  EXPECT_EQ(sizes(parsed({"-b", "1M", "-e", "3M"})),
            (std::vector<std::size_t>{1 << 20, 2 << 20, 3 << 20}));
  EXPECT_EQ(sizes(parsed({"-b", "10", "-e", "100", "-f", "3"})),
            (std::vector<std::size_t>{10, 30, 90}));
  EXPECT_EQ(sizes(parsed({"-b", "0", "-e", "4", "-f", "2"})), (std::vector<std::size_t>{0, 2, 4}));
  EXPECT_EQ(sizes(parsed({"-b", "7", "-e", "7", "-i", "0"})), (std::vector<std::size_t>{7}));
}

TEST(PerfOptions, TakesTheNamesOfFp8WithAndWithoutUnderscore) {
  for (const char* name : {"f8e4m3", "fp8_e4m3"})
    EXPECT_EQ(parsed({"-d", name}).types, std::vector{DataType::f8e4m3}) << name;
  EXPECT_EQ(parsed({"-d", "fp8_e5m2"}).types, std::vector{DataType::f8e5m2});
}

TEST(PerfOptions, TakesWhatIsMeasuredHowAndWhatIsShown) {
  const Options options =
      parsed({"-t", "3",  "-g", "1",  "-m", "4",  "-N", "0",  "-p", "1",  "-z",     "3",    "-y",
              "0",  "-T", "9",  "-G", "0",  "-C", "1",  "-S", "1",  "-R", "0",      "-D",   "0",
              "-V", "16", "-M", "1",  "-u", "1",  "-I", "1",  "-K", "2",  "--plot", "x.svg"});
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.ranks, 1) << "threads stand in for processes";
  EXPECT_EQ(options.aggregated, 4);
  EXPECT_EQ(options.run_cycles, 0);
  EXPECT_TRUE(options.parallel_init);
  EXPECT_EQ(options.blocking, Blocking::barrier_untimed);
  EXPECT_EQ(options.timeout_s, 9);
  EXPECT_TRUE(options.cpu_time);
  EXPECT_TRUE(options.timestamps);
  EXPECT_TRUE(options.memory);
  EXPECT_EQ(options.unalign, 1);
  EXPECT_TRUE(options.per_iteration);
  EXPECT_EQ(options.skipped_iterations, 2);
  EXPECT_EQ(options.plot_path, "x.svg");
  const Options long_names = parsed({"--nthreads=2",
                                     "--ngpus=1",
                                     "--agg_iters=2",
                                     "--run_cycles=2",
                                     "--parallel_init=0",
                                     "--blocking=1",
                                     "--stream_null=0",
                                     "--timeout=1",
                                     "--cudagraph=0",
                                     "--report_cputime=0",
                                     "--report_timestamps=0",
                                     "--local_register=0",
                                     "--device_implementation=0",
                                     "--device_cta_count=16",
                                     "--memory_report=0",
                                     "--unalign=0",
                                     "--per_iter_timing=0",
                                     "--per_iter_skip=0",
                                     "--minbytes=8",
                                     "--maxbytes=8",
                                     "--stepbytes=8",
                                     "--stepfactor=2",
                                     "--iters=1",
                                     "--warmup_iters=1",
                                     "--check=1",
                                     "--op=sum",
                                     "--datatype=int8",
                                     "--root=0",
                                     "--average=0",
                                     "--output_file=x.json"});
  EXPECT_EQ(long_names.blocking, Blocking::wait_and_barrier);
  EXPECT_FALSE(long_names.per_iteration);
}

TEST(PerfOptions, GpusAreThoseOfNcclTestsAndHaveTheBuffers) {
  EXPECT_FALSE(parsed({}).on_gpus());
  EXPECT_FALSE(parsed({"-g", "1"}).on_gpus()) << "scripts for nccl-tests give it everywhere";
  const Options four = parsed({"-g", "4", "-t", "2", "-J", "x.json"});
  EXPECT_EQ(four.device, kAnyDevice);
  EXPECT_EQ(four.ranks_of_process(), 8);
  EXPECT_EQ(four.ranks, 1) << "one process";
  EXPECT_FALSE(four.measures_phase()) << "it is about cores";
  const Options each = parsed({"--device", "all_gather"});
  EXPECT_EQ(each.what, Operation::all_gather) << "the next word is no value of --device";
  EXPECT_TRUE(each.rank_per_gpu);
  EXPECT_FALSE(parsed({"--device", "--ranks", "3"}).rank_per_gpu);
  EXPECT_FALSE(parsed({"--device", "--nccl-tests"}).rank_per_gpu) << "its default is one rank";
  const Options shared = parsed({"--device=1", "-y", "1"});
  EXPECT_EQ(shared.device, "1");
  EXPECT_TRUE(shared.null_stream);
  EXPECT_FALSE(shared.rank_per_gpu);
  EXPECT_EQ(shared.ranks, 2);
}

TEST(PerfOptions, ALinkedNameHasTheOperationAndTheDefaultsOfNcclTests) {
  const char* argv[] = {"/usr/bin/reduce_scatter_perf", "-b", "8"};
  const std::vector<std::string> arguments = command_line(3, argv);
  EXPECT_EQ(arguments, (std::vector<std::string>{"tutti-perf", "reduce_scatter_perf",
                                                 "--nccl-tests", "-b", "8"}));
  const Options options = parse(arguments).value();
  EXPECT_EQ(options.what, Operation::reduce_scatter);
  EXPECT_EQ(options.ranks, 1);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_TRUE(options.rotate);
  EXPECT_EQ(parsed({"--nccl-tests", "-n", "3", "--ranks", "4"}).iterations, 3);
  EXPECT_EQ(parsed({"--nccl-tests", "-n", "3", "--ranks", "4"}).ranks, 4);
  const char* plain[] = {"./tutti-perf", "all_reduce_perf"};
  EXPECT_EQ(command_line(2, plain), (std::vector<std::string>{"./tutti-perf", "all_reduce_perf"}));
}

TEST(PerfOptions, TheEnvironmentOfNcclTestsIsObeyedOrRefused) {
  ::setenv("NCCL_TESTS_MIN_BW", "12.5", 1);
  EXPECT_EQ(parsed({}).min_bus_gb_s, 12.5);
  ::setenv("NCCL_TESTS_MIN_BW", "fast", 1);
  EXPECT_THROW(parsed({}), Error);
  ::unsetenv("NCCL_TESTS_MIN_BW");
  EXPECT_EQ(parsed({}).min_bus_gb_s, std::nullopt);
  ::setenv("NCCL_TESTS_ALLTOALLV_SPREAD", "0.5", 1);
  EXPECT_EQ(parsed({}).alltoallv_spread, 0.5);
  ::unsetenv("NCCL_TESTS_ALLTOALLV_SPREAD");
  EXPECT_EQ(parsed({}).alltoallv_spread, 1);
  ::setenv("NCCL_TESTS_DEVICE", "1", 1);
  EXPECT_THROW(parsed({}), Error) << "it would measure other ranks than were asked for";
  ::unsetenv("NCCL_TESTS_DEVICE");
}

TEST(PerfOptions, TheSplitOfNcclTestsIsReadAsTheyReadIt) {
  using By = Split::By;
  for (const auto& [text, split] :
       std::vector<std::pair<std::string, Split>>{{"AND 0x7", {By::bit_and, 7}},
                                                  {"and0b11", {By::bit_and, 3}},
                                                  {"& 010", {By::bit_and, 8}},
                                                  {"OR 1", {By::bit_or, 1}},
                                                  {"|0", {By::bit_or, 0}},
                                                  {"Mod  2", {By::remainder, 2}},
                                                  {"%3", {By::remainder, 3}},
                                                  {"DIV 4", {By::quotient, 4}},
                                                  {"/ 0X10", {By::quotient, 16}}})
    EXPECT_EQ(parse_split(text), split) << text;
  for (const char* text : {"", "AND", "XOR 1", "MOD 0", "/0", "AND x", "AND 7 8", "AND -1", "% 2x",
                           "AND 08", "AND 0x80000000", "AN", "7"})
    EXPECT_EQ(parse_split(text), std::nullopt) << text;
  std::vector<int> colors;
  for (const By by : {By::nothing, By::bit_and, By::bit_or, By::remainder, By::quotient})
    colors.push_back(Split{by, 3}.color(5));
  EXPECT_EQ(colors, (std::vector{0, 1, 7, 2, 1}));

  ::setenv("NCCL_TESTS_SPLIT", "DIV 2", 1);
  EXPECT_EQ(parsed({}).split, (Split{By::quotient, 2}));
  EXPECT_NO_THROW(require_ranks(parsed({"-r", "1"}), 4));
  EXPECT_THROW(require_ranks(parsed({"-r", "1"}), 3), Error) << "the second group has one rank";
  EXPECT_NO_THROW(require_ranks(parsed({"hypercube"}), 6)) << "three groups of two";
  EXPECT_NO_THROW(require_ranks(parsed({"-r", "all"}), 4));
  EXPECT_THROW(require_ranks(parsed({"-r", "all"}), 3), Error) << "groups have other roots";
  ::setenv("NCCL_TESTS_SPLIT_MASK", "10", 1);
  EXPECT_EQ(parsed({}).split, (Split{By::bit_and, 16})) << "hexadecimal, and before the other";
  ::setenv("NCCL_TESTS_SPLIT_MASK", "0x7", 1);
  EXPECT_EQ(parsed({}).split, (Split{By::bit_and, 7}));
  for (const char* wrong : {"", "0x", "g", "1 "}) {
    ::setenv("NCCL_TESTS_SPLIT_MASK", wrong, 1);
    EXPECT_THROW(parsed({}), Error) << wrong;
  }
  ::unsetenv("NCCL_TESTS_SPLIT_MASK");
  ::setenv("NCCL_TESTS_SPLIT", "MOD two", 1);
  EXPECT_THROW(parsed({}), Error);
  ::unsetenv("NCCL_TESTS_SPLIT");
  EXPECT_EQ(parsed({}).split, Split{});
}

TEST(PerfOptions, SaysWhatIsWrongWithAnArgument) {
  const auto refused = [](const std::vector<std::string>& arguments, ErrorKind kind,
                          const std::string& why) {
    try {
      (void)parsed(arguments);
      ADD_FAILURE() << "accepted; expected: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refused({"all_redcue"}, ErrorKind::usage, "there is no operation 'all_redcue'");
  refused({"-d", "f32"}, ErrorKind::usage, "use one of int8, uint8, int32, uint32, int64");
  refused({"-o", "mul"}, ErrorKind::usage, "use one of sum, prod, max, min, avg, mulsum");
  refused({"-b", "8X"}, ErrorKind::usage, "-b 8X: expected a size in bytes");
  refused({"-b", "64M"}, ErrorKind::usage, "-b 64M is greater than -e 32M");
  refused({"-b", "8", "-i", "0"}, ErrorKind::usage, "-i 0: sizes would never reach -e");
  refused({"-r", "-1"}, ErrorKind::usage, "-r -1: expected a rank or all");
  refused({"-n", "0"}, ErrorKind::usage, "--iters");
  refused({"--frobnicate"}, ErrorKind::usage, "--frobnicate");
  for (const char* option : {"-G", "-x", "-D", "-V"})
    refused({option, "1"}, ErrorKind::unavailable, "which tutti-perf cannot do");
  refused({"-R", "3"}, ErrorKind::usage, "--local_register");
  for (const char* const option : {"-p", "-I", "-C", "-S", "-M"})
    refused({option, "2"}, ErrorKind::usage, "not in range 0 to 1");
  for (const char* const other : {"--limits", "--explain"})
    refused({"--tune", other}, ErrorKind::usage, "excludes");
  refused({"--explain", "--limits"}, ErrorKind::usage, "excludes");
  refused({"broadcast", "--limits"}, ErrorKind::usage, "excludes");
  refused({"--limits", "--ranks", "4"}, ErrorKind::usage, "excludes");
  for (const auto& [option, value] :
       {std::pair{"-d", "double"}, {"-o", "max"}, {"-R", "1"}, {"-J", "file"}, {"-n", "5"}})
    refused({"--limits", option, value}, ErrorKind::usage, "means nothing to it: it takes -b, -e");
  EXPECT_TRUE(parsed({"--limits", "-b", "8", "-e", "1M", "-i", "8", "-f", "2"}).limits);
  refused({"-t", "2", "--ranks", "2"}, ErrorKind::unavailable, "processes of one rank each");
  refused({"-g", "2", "--ranks", "2"}, ErrorKind::unavailable, "tutti-run -n 2 -- tutti-perf");
  refused({"--device=first"}, ErrorKind::usage, "--device=first: expected rank, or the number");
  refused({"--device=-1"}, ErrorKind::usage, "--device=-1: expected rank, or the number");
  refused({"-y", "1"}, ErrorKind::unavailable, "add --device");
  refused({"-R", "1", "--device"}, ErrorKind::unavailable, "tutti::Buffer is memory of the host");
  for (const char* const of_host : {"--limits", "--explain", "--tune", "--show-limits", "--phase"})
    refused({of_host, "-g", "2"}, ErrorKind::unavailable, "is about what the cores of the host");
  refused({"--tune-samples", "file", "-g", "2"}, ErrorKind::unavailable, "cores of the host");
  refused({"-m", "0"}, ErrorKind::usage, "--agg_iters");
  refused({"-z", "4"}, ErrorKind::usage, "--blocking");
  refused({"-T", "-1"}, ErrorKind::usage, "--timeout");
  refused({"-I", "maybe"}, ErrorKind::usage, "--per_iter_timing");
  refused({"-n", "5", "-K", "5"}, ErrorKind::usage, "-K 5: of 5 iterations (-n) none is left");
  EXPECT_THROW(require_ranks(parsed({"-r", "2"}), 2), Error);
  EXPECT_NO_THROW(require_ranks(parsed({"-r", "1"}), 2));
  EXPECT_THROW(require_ranks(parsed({"hypercube"}), 6), Error);
  EXPECT_NO_THROW(require_ranks(parsed({"hypercube"}), 8));
}

}  // namespace
}  // namespace tutti::perf
