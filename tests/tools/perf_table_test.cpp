// The table's bytes, against what nccl-tests 2.19.6 prints.
#include "perf/table.h"

#include <gtest/gtest.h>

#include <string>

namespace tutti::perf {
namespace {

Row all_reduce_row(double time_us, double algorithm_gb_s, double bus_gb_s) {
  const Timing timing{time_us, algorithm_gb_s, bus_gb_s, 0, 20, std::nullopt};
  return {33554432, 8388608, "float", "sum", -1, timing, timing, std::nullopt};
}

TEST(PerfTable, BannerSaysWhatIsMeasured) {
  Options options;
  options.min_bytes = 8;
  options.max_bytes = 128u << 20;
  options.step_factor = 2;
  options.iterations = 20;
  EXPECT_EQ(format_banner(options, "1.2.3"),
            "# tutti-perf version 1.2.3 tutti-library=10203\n"
            "# Collective test starting: all_reduce_perf\n"
            "# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 1 "
            "iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0\n"
            "#\n"
            "# Using devices\n");
  options.step_factor = 1;
  options.iterations = 0;
  EXPECT_NE(
      format_banner(options, "1.2.3").find("step: 1048576(bytes) warmup iters: 1 iters: auto"),
      std::string::npos);
}

TEST(PerfTable, DevicesAreWrittenAsNcclTestsWritesGpus) {
  EXPECT_EQ(format_device({0, 12345, "hostname", 0, "NVIDIA H200"}),
            "#  Rank  0 Group  0 Pid  12345 on   hostname device  0 [cpu] NVIDIA H200\n");
}

TEST(PerfTable, TitlesAreThoseOfNcclTests) {
  const std::string titles =
      "#\n"
      "#                                                              out-of-place                 "
      "  "
      "    in-place          \n"
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
      "time "
      "  algbw   busbw  #wrong \n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
      "(us) "
      " (GB/s)  (GB/s)         \n";
  EXPECT_EQ(format_titles(Options{}), titles);
}

TEST(PerfTable, RowIsThatOfNcclTests) {
  Row row = all_reduce_row(152.37, 220.22, 385.38);
  row.in_place = {151.90, 220.90, 386.57, 0, 20, std::nullopt};
  EXPECT_EQ(
      format_row(row, Options{}),
      "    33554432       8388608     float     sum      -1   152.37  220.22  385.38       0   "
      "151.90  220.90  386.57       0\n");
}

TEST(PerfTable, RowHasRoomForEverythingThatCanHappen) {
  Row row = all_reduce_row(12345678.9, 0.001, 12345.6);
  row.root = 12;
  row.type = "bfloat16";
  row.op = "none";
  row.out_of_place.wrong = 1234567;
  row.in_place.wrong.reset();
  EXPECT_EQ(format_row(row, Options{}),
            "    33554432       8388608  bfloat16    none      12  1.2e+07    0.00   12346  "
            "1.23457e+06  1.2e+07    0.00   12346    N/A\n");
}

TEST(PerfTable, ColumnsOfOursFollowWhenAskedFor) {
  Options options;
  options.show_limits = options.show_phase = true;
  Row row = all_reduce_row(1, 2, 3);
  row.limit_us = 0.057;
  row.out_of_place.one_way_ns = 57.25;
  row.in_place.one_way_ns = 231.5;
  EXPECT_EQ(
      format_row(row, options),
      "    33554432       8388608     float     sum      -1     1.00    2.00    3.00       0     "
      "1.00    2.00    3.00       0     0.06   231.50\n");
  const std::string titles = format_titles(options);
  EXPECT_NE(titles.find("#wrong    limit   oneway \n"), std::string::npos) << titles;
  EXPECT_NE(titles.find("   (us)     (ns) \n"), std::string::npos) << titles;
}

TEST(PerfTable, NumbersKeepAsManyDigitsAsFit) {
  EXPECT_EQ(fit(0, 7), "   0.00");
  EXPECT_EQ(fit(0.005, 7), "   0.01");
  EXPECT_EQ(fit(9.999, 7), "  10.00");
  EXPECT_EQ(fit(1234.56, 7), "1234.56");
  EXPECT_EQ(fit(12345.67, 7), "12345.7");
  EXPECT_EQ(fit(123456.7, 7), " 123457");
  EXPECT_EQ(fit(1234567.8, 7), "1234568");
  EXPECT_EQ(fit(12345678, 7), "1.2e+07");
  EXPECT_EQ(fit(123.456, 6), "123.46");
  EXPECT_EQ(fit(1234.56, 6), "1234.6");
  EXPECT_EQ(fit(12345.6, 6), " 12346");
  EXPECT_EQ(fit(123456, 6), "123456");
  EXPECT_EQ(fit(1234567, 6), " 1e+06");
}

TEST(PerfTable, SummarySaysWhetherAllWasRight) {
  EXPECT_EQ(format_summary({0, 123.4}, Options{}),
            "# Out of bounds values : 0 OK\n"
            "# Avg bus bandwidth    : 123.4 \n"
            "#\n"
            "# Collective test concluded: all_reduce_perf\n"
            "#\n"
            "\n");
  EXPECT_EQ(format_summary({3, 0.1234567}, Options{}).substr(0, 69),
            "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 0.123457 \n");
}

}  // namespace
}  // namespace tutti::perf
