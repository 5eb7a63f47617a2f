#include "perf/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "xml.h"

namespace tutti::perf {
namespace {

using testing::HasSubstr;
using testing::Not;

Report example() {
  Report report;
  report.devices = {{0, 0, 12, "host", 1, "A < B & C"}, {1, 0, 13, "host", 2, "A < B & C"}};
  report.start_time = "2026-11-21 05:22:07";
  for (std::size_t size = 0; size <= 1 << 20; size = size == 0 ? 8 : 4 * size) {
    const auto us = static_cast<double>(size) / 1e3;
    Row row;
    row.size_bytes = size;
    row.type = "float";
    row.op = "sum";
    row.out_of_place.time_us = row.in_place.time_us = us;
    row.out_of_place.bus_gb_s = row.in_place.bus_gb_s = us > 0 ? 2 : 0;
    report.rows.push_back(row);
  }
  return report;
}

TEST(PerfPlot, IsWellFormedAndSaysWhatItShows) {
  const std::string svg = to_svg(example(), Options{});
  EXPECT_EQ(tools::xml_mistake(svg), "");
  EXPECT_THAT(svg, HasSubstr(">all_reduce</text>"));
  EXPECT_THAT(svg, HasSubstr("2 ranks on A &lt; B &amp; C, 2026-11-21 05:22:07"));
  EXPECT_THAT(svg, HasSubstr(">Bus bandwidth, GB/s, over size</text>"));
  EXPECT_THAT(svg, HasSubstr(">float sum, out of place</text>"));
  EXPECT_THAT(svg, HasSubstr(">float sum, in place</text>"));
  EXPECT_THAT(svg, HasSubstr(">512 KiB</text>"));
}

/// Returns the coordinates of the first line from `from` on that has `points`.
std::vector<std::pair<double, double>> points_of(const std::string& svg, std::size_t from) {
  const std::size_t begin = svg.find("points=\"", from) + 8, end = svg.find('"', begin);
  std::istringstream text(svg.substr(begin, end - begin));
  std::vector<std::pair<double, double>> points;
  double x = 0, y = 0;
  for (char comma = 0; text >> x >> comma >> y;) points.emplace_back(x, y);
  return points;
}

TEST(PerfPlot, BothAxesAreLogarithmic) {
  const std::string svg = to_svg(example(), Options{});
  const auto times = points_of(svg, svg.find(">Time, "));
  ASSERT_EQ(times.size(), 9u) << "8 bytes to 512 KiB; none for 0";
  for (std::size_t i = 2; i < times.size(); ++i) {
    EXPECT_NEAR(times[i].first - times[i - 1].first, times[1].first - times[0].first, 0.15);
    EXPECT_NEAR(times[i].second - times[i - 1].second, times[1].second - times[0].second, 0.15);
  }
  EXPECT_GT(times[1].first, times[0].first);
  EXPECT_LT(times[1].second, times[0].second) << "greater is higher up";
}

TEST(PerfPlot, SeveralTypesHaveLinesOfTheirOwnAndSeveralCyclesHaveNot) {
  Report report = example();
  const std::size_t count = report.rows.size();
  for (std::size_t i = 0; i < count; ++i) {
    report.rows.push_back(report.rows[i]);
    report.rows.push_back(report.rows[i]);
    report.rows.back().type = "half";
  }
  const std::string svg = to_svg(report, Options{});
  EXPECT_EQ(tools::xml_mistake(svg), "");
  std::size_t labels = 0;
  for (std::size_t at = 0; (at = svg.find("out of place</text>", at)) != std::string::npos; ++at)
    ++labels;
  EXPECT_EQ(labels, 2u);
}

TEST(PerfPlot, WhatHasNoInPlaceHasNoLineForIt) {
  Options options;
  options.what = Operation::sendrecv;
  EXPECT_THAT(to_svg(example(), options), Not(HasSubstr("in place")));
}

TEST(PerfPlot, ATableWithoutABandwidthIsAnEmptyPicture) {
  Report report = example();
  report.rows.resize(1);  // the row of size 0
  const std::string svg = to_svg(report, Options{});
  EXPECT_EQ(tools::xml_mistake(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(XmlMistake, IsFoundByTheTestsOwnReader) {
  EXPECT_EQ(tools::xml_mistake("<a b=\"c\"><d/>text &lt; more</a>\n"), "");
  for (const char* text :
       {"<a>", "<a></b>", "<a b=c/>", "a", "<a>&</a>", "<a/><b/>", "<a b=\"<\"/>"})
    EXPECT_NE(tools::xml_mistake(text), "") << text;
}

}  // namespace
}  // namespace tutti::perf
