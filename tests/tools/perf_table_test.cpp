// Compares the table, byte for byte, with what nccl-tests 2.19.6 prints.
#include "perf/table.h"

#include <gtest/gtest.h>

#include <string>

namespace tutti::perf {
namespace {

Row all_reduce_row(double time_us, double algorithm_gb_s, double bus_gb_s) {
  const Timing timing{time_us, algorithm_gb_s, bus_gb_s, 0, 20, std::nullopt, std::nullopt};
  return {33554432, 8388608, "float", "sum", -1, timing, timing, std::nullopt, {}};
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
  EXPECT_EQ(format_device({0, 0, 12345, "hostname", 0, "NVIDIA H200"}),
            "#  Rank  0 Group  0 Pid  12345 on   hostname device  0 [cpu] NVIDIA H200\n");
}

TEST(PerfTable, AGpuHasItsPlaceOnTheBus) {
  EXPECT_EQ(format_device({3, 1, 12345, "hostname", 2, "NVIDIA H200", "0000:17:00"}),
            "#  Rank  3 Group  1 Pid  12345 on   hostname device  2 [0000:17:00] NVIDIA H200\n");
  Options options;
  options.threads = 2;
  options.gpus = 4;
  EXPECT_NE(format_banner(options, "1.2.3").find("# nThread 2 nGpus 4 minBytes"),
            std::string::npos);
}

TEST(PerfTable, SaysWhoMovesTheBytesWhereThereAreGpus) {
  Options options;
  EXPECT_EQ(mover(options, true), Mover::kernels_for_host);
  options.device = "rank";
  EXPECT_EQ(mover(options, true), Mover::kernels);
  EXPECT_EQ(mover(options, false), Mover::host);
  for (const Operation what : {Operation::sendrecv, Operation::hypercube}) {
    options.what = what;
    EXPECT_EQ(mover(options, true), Mover::host_transfers);
  }
  EXPECT_EQ(format_mover(Mover::kernels), "#\n# Bytes moved by       : kernels of these GPUs\n");
  EXPECT_EQ(format_mover(Mover::host),
            "#\n# Bytes moved by       : the host, by way of pinned memory\n");
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
  row.in_place = {151.90, 220.90, 386.57, 0, 20, std::nullopt, std::nullopt};
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

TEST(PerfTable, BannerSaysHowItIsMeasured) {
  Options options;
  options.threads = 3;
  options.aggregated = 4;
  options.unalign = 1;
  options.blocking = Blocking::wait_and_barrier;
  options.per_iteration = true;
  options.skipped_iterations = 2;
  const std::string banner = format_banner(options, "1.2.3");
  EXPECT_NE(banner.find("# nThread 3 nGpus 1 "), std::string::npos);
  EXPECT_NE(banner.find(" agg iters: 4 validation: 1 graph: 0 unalign: 1\n"
                        "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n"
                        "# Per-Iteration Report: CPU clock timing; i_* uses max over process rows; "
                        "summary skips first 2 iterations \n"
                        "#\n# Using devices\n"),
            std::string::npos)
      << banner;
  options.blocking = Blocking::wait;
  EXPECT_NE(format_banner(options, "1.2.3").find("(-m), no barrier \n"), std::string::npos);
  options.blocking = Blocking::barrier_untimed;
  EXPECT_NE(format_banner(options, "1.2.3").find("(-n); time excludes barrier \n"),
            std::string::npos);
}

TEST(PerfTable, IterationsHaveTheTitlesAndColumnsOfNcclTests) {
  Options options;
  options.per_iteration = true;
  EXPECT_EQ(
      format_titles(options),
      "#\n"
      "#                                                                 out-of-place (+ "
      "per-iteration)                                in-place (+ per-iteration)\n"
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong    "
      "i_min    i_max    i_p99    i_cv%     time   algbw   busbw  #wrong    i_min    i_max    "
      "i_p99    i_cv% \n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
      "(us)     (us)     (us)      (%)     (us)  (GB/s)  (GB/s)             (us)     (us)     "
      "(us)      (%) \n");
  Row row = all_reduce_row(2, 2, 3);
  row.out_of_place.per_iteration = row.in_place.per_iteration =
      IterationTimes{1, {99, 1, 2, 3}, {{99, 1, 2, 3}}};
  EXPECT_EQ(format_row(row, options),
            "    33554432       8388608     float     sum      -1     2.00    2.00    3.00       0"
            "     1.00     3.00     3.00    40.82     2.00    2.00    3.00       0     1.00     "
            "3.00     3.00    40.82\n");
}

TEST(PerfTable, StatisticsAreThoseOfNcclTests) {
  IterationTimes times{0, {}, {}};
  for (int i = 1; i <= 200; ++i) times.slowest_us.push_back(201 - i);
  const Statistics s = statistics(times);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 200);
  EXPECT_EQ(s.p50, 101);
  EXPECT_EQ(s.p95, 190);
  EXPECT_EQ(s.p99, 198);
  EXPECT_DOUBLE_EQ(s.mean, 100.5);
  EXPECT_NEAR(s.deviation, 57.734305, 1e-6);
  times.skipped = 199;
  EXPECT_EQ(statistics(times).max, 1) << "the last one alone is left";
}

TEST(PerfTable, TheTimeOfDayEndsTheRow) {
  Options options;
  options.timestamps = options.cpu_time = true;
  Row row = all_reduce_row(1, 2, 3);
  row.time_of_day = "2026-11-21 05:22:07";
  EXPECT_EQ(format_row(row, options),
            "    33554432       8388608     float     sum      -1     1.00    2.00    3.00       0"
            "     1.00    2.00    3.00       0  2026-11-21 05:22:07\n");
  const std::string titles = format_titles(options);
  EXPECT_NE(titles.find("  cputime   algbw"), std::string::npos) << titles;
  EXPECT_NE(titles.find("#wrong           timestamp\n"), std::string::npos) << titles;
  EXPECT_NE(titles.find("           %Y-%m-%d %H:%M:%S\n"), std::string::npos) << titles;
}

TEST(PerfTable, SummaryHasMemoryAndTheLeastBandwidthWhenAskedFor) {
  Options options;
  options.memory = true;
  options.min_bus_gb_s = 100;
  const std::string text = format_summary({0, 90, 415744, 16u << 20}, options);
  EXPECT_NE(text.find("# Avg bus bandwidth    : 90 OK\n"
                      "# Memory usage         : Communicator 406 KB | Buffers 16.0 MB | Total "
                      "16.4 MB\n#\n"),
            std::string::npos)
      << text;
  EXPECT_TRUE(passed({0, 90, 0, 0}, options)) << "nine tenths will do";
  EXPECT_FALSE(passed({0, 89, 0, 0}, options));
  EXPECT_NE(format_summary({0, 89, 0, 0}, options).find(" : 89 FAILED\n"), std::string::npos);
  EXPECT_FALSE(passed({1, 90, 0, 0}, options));
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
  EXPECT_EQ(format_summary({0, 123.4, 0, 0}, Options{}),
            "# Out of bounds values : 0 OK\n"
            "# Avg bus bandwidth    : 123.4 \n"
            "#\n"
            "# Collective test concluded: all_reduce_perf\n"
            "#\n"
            "\n");
  EXPECT_EQ(format_summary({3, 0.1234567, 0, 0}, Options{}).substr(0, 69),
            "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 0.123457 \n");
}

}  // namespace
}  // namespace tutti::perf
