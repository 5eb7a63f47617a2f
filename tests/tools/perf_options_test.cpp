#include "perf/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tutti/error.hpp>

namespace tutti::perf {
namespace {

Options parsed(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tutti-perf");
  return parse(static_cast<int>(arguments.size()), arguments.data()).value();
}

TEST(PerfOptions, SizesAreBytesOrPowersOf1024) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("8"), 8u);
  EXPECT_EQ(parse_size("1K"), 1024u);
  EXPECT_EQ(parse_size("1.5k"), 1536u);
  EXPECT_EQ(parse_size("64M"), 64u << 20);
  EXPECT_EQ(parse_size("1G"), std::size_t{1} << 30);
  EXPECT_EQ(parse_size("2t"), std::size_t{2} << 40);
}

TEST(PerfOptions, WhatIsNoSizeIsRefused) {
  for (const char* text :
       {"", "K", "-8", "8B", "8KB", "1 K", "x", "0x10", "1e3", "nan", "99999999T"})
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
}

TEST(PerfOptions, DefaultsAreThoseOfNcclTests) {
  const Options options = parsed({});
  EXPECT_EQ(options.what, Collective::all_reduce);
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
  EXPECT_EQ(options.what, Collective::reduce_scatter);
  EXPECT_EQ(options.iterations, 5);
  EXPECT_EQ(options.checks, 0);
  EXPECT_EQ(options.ops, (std::vector{Op::sum, Op::prod, Op::max, Op::min, Op::avg}));
  EXPECT_EQ(options.types, (std::vector{DataType::int32, DataType::int64, DataType::f32,
                                        DataType::f64, DataType::bf16}));
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

TEST(PerfOptions, SaysWhatIsWrongWithAnArgument) {
  const auto refused = [](const std::vector<const char*>& arguments, ErrorKind kind,
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
  refused({"alltoallv_perf"}, ErrorKind::unavailable, "the operation 'alltoallv' is unavailable");
  refused({"-d", "half"}, ErrorKind::unavailable, "the type 'half' is unavailable");
  refused({"-d", "f32"}, ErrorKind::usage, "use one of int32, int64, float, double, bfloat16");
  refused({"-o", "mulsum"}, ErrorKind::unavailable, "the reduction 'mulsum' is unavailable");
  refused({"-b", "8X"}, ErrorKind::usage, "-b 8X: expected a size in bytes");
  refused({"-b", "64M"}, ErrorKind::usage, "-b 64M is greater than -e 32M");
  refused({"-b", "8", "-i", "0"}, ErrorKind::usage, "-i 0: sizes would never reach -e");
  refused({"-r", "-1"}, ErrorKind::usage, "-r -1: expected a rank or all");
  refused({"-n", "0"}, ErrorKind::usage, "--iters");
  refused({"--frobnicate"}, ErrorKind::usage, "--frobnicate");
  EXPECT_THROW(require_root(parsed({"-r", "2"}), 2), Error);
  EXPECT_NO_THROW(require_root(parsed({"-r", "1"}), 2));
}

}  // namespace
}  // namespace tutti::perf
