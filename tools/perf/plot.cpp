#include "perf/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string_view>
#include <vector>

namespace tutti::perf {
namespace {

struct Point {
  double x = 0, y = 0;
};

/// One curve of the picture.
struct Series {
  std::string label;
  std::string_view colour;
  bool dashed = false;
  std::vector<Point> time, bandwidth;
};

// Colours of Okabe and Ito (2008), which colour-blind readers can tell apart.
constexpr std::string_view kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                         "#e69f00", "#56b4e9", "#000000"};

// Sizes in pixels. Two panels are side by side, with the legend below them.
constexpr double kPanelWidth = 460, kPanelHeight = 340, kLeft = 80, kTop = 92, kGap = 100;
constexpr double kLegendRow = 22, kWidth = kLeft + 2 * kPanelWidth + kGap + 30;
constexpr int kLegendColumns = 4;
constexpr double kLegendColumn = (kWidth - kLeft) / kLegendColumns;

/// Escapes text for XML.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  }
  return result;
}

/// Returns for example "64 KiB".
std::string size_label(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:g} {}", bytes, kUnits[unit]);
}

/// A logarithmic axis whose ends are whole powers of its base.
class Axis {
 public:
  Axis(double base, double least, double greatest)
      : base_(base),
        first_(std::floor(std::log(least) / std::log(base) + 1e-9)),
        last_(std::max(first_ + 1, std::ceil(std::log(greatest) / std::log(base) - 1e-9))) {
    assert(base > 1 && 0 < least && least <= greatest);
  }

  /// Returns the position of a value on the axis, from 0 to 1.
  [[nodiscard]] double position(double value) const {
    return (std::log(value) / std::log(base_) - first_) / (last_ - first_);
  }
  /// Returns the powers that get a grid line, at most a dozen.
  [[nodiscard]] std::vector<double> ticks() const {
    const double step = std::ceil((last_ - first_) / 12);
    std::vector<double> values;
    for (double power = first_; power <= last_; power += step)
      values.push_back(std::pow(base_, power));
    return values;
  }
  [[nodiscard]] double base() const noexcept { return base_; }

 private:
  double base_, first_, last_;
};

using Points = std::vector<Point> Series::*;

/// Returns an axis for the points of all curves.
Axis axis_of(const std::vector<Series>& lines, Points points, double Point::*coordinate,
             double base) {
  double least = INFINITY, greatest = 0;
  for (const Series& line : lines)
    for (const Point& point : line.*points) {
      least = std::min(least, point.*coordinate);
      greatest = std::max(greatest, point.*coordinate);
    }
  return greatest > 0 ? Axis(base, least, greatest) : Axis(base, 1, base);
}

class Panel {
 public:
  Panel(double left, Points points, std::string_view title, const std::vector<Series>& lines)
      : left_(left),
        points_(points),
        title_(title),
        lines_(lines),
        x_(axis_of(lines, points, &Point::x, 2)),
        y_(axis_of(lines, points, &Point::y, 10)) {}

  [[nodiscard]] std::string draw() const {
    std::string svg = fmt::format("<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                                  left_, kTop - 14, title_);
    for (const double value : x_.ticks()) svg += vertical(value);
    for (const double value : y_.ticks()) svg += horizontal(value);
    svg += fmt::format(
        "<rect class=\"frame\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
        left_, kTop, kPanelWidth, kPanelHeight);
    for (const Series& line : lines_) svg += curve(line);
    return svg;
  }

 private:
  [[nodiscard]] double x_of(double value) const { return left_ + kPanelWidth * x_.position(value); }
  [[nodiscard]] double y_of(double value) const {
    return kTop + kPanelHeight * (1 - y_.position(value));
  }

  [[nodiscard]] std::string vertical(double value) const {
    const double x = x_of(value), bottom = kTop + kPanelHeight;
    return fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n"
        "<text class=\"tick\" text-anchor=\"end\" "
        "transform=\"translate({0:.1f},{3:.1f}) rotate(-35)\">{4}</text>\n",
        x, kTop, bottom, bottom + 16, size_label(value));
  }

  [[nodiscard]] std::string horizontal(double value) const {
    const double y = y_of(value), right = left_ + kPanelWidth;
    std::string svg = fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>\n"
        "<text class=\"tick\" text-anchor=\"end\" x=\"{3:.1f}\" y=\"{4:.1f}\">{5:g}</text>\n",
        left_, y, right, left_ - 8, y + 4, value);
    for (int digit = 2; digit <= 9; ++digit) {
      const double part = y_.position(value * digit);
      if (part >= 1) break;
      svg += fmt::format(
          "<line class=\"minor\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>\n",
          left_, y_of(value * digit), right);
    }
    return svg;
  }

  [[nodiscard]] std::string curve(const Series& line) const {
    std::string path, dots;
    for (const Point& point : line.*points_) {
      const double x = x_of(point.x), y = y_of(point.y);
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x, y);
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>\n", x, y,
                          line.dashed ? "#ffffff" : line.colour);
    }
    if (path.empty()) return {};
    return fmt::format("<g stroke=\"{}\"><polyline{} points=\"{}\"/>\n{}</g>\n", line.colour,
                       line.dashed ? " stroke-dasharray=\"6 4\"" : "", path, dots);
  }

  double left_;
  Points points_;
  std::string_view title_;
  const std::vector<Series>& lines_;
  Axis x_, y_;
};

/// Returns for example "float sum", with the root if there are several.
std::string label_of(const Row& row, const Options& options) {
  std::string label(row.type);
  if (row.op != "none") label += fmt::format(" {}", row.op);
  if (row.root >= 0 && !options.root) label += fmt::format(" root {}", row.root);
  return label;
}

void add(Series& line, const Row& row, const Timing& timing) {
  const auto size = static_cast<double>(row.size_bytes);
  if (size <= 0) return;
  if (timing.time_us > 0) line.time.push_back({size, timing.time_us});
  if (timing.bus_gb_s > 0) line.bandwidth.push_back({size, timing.bus_gb_s});
}

std::vector<Series> lines_of(const Report& report, const Options& options) {
  std::vector<Series> lines;  // out of place and in place alternate
  for (const Row& row : report.rows) {
    const std::string label = label_of(row, options);
    const std::size_t lines_each = has_in_place(options.what) ? 2 : 1;
    std::size_t at = 0;
    while (at < lines.size() && lines[at].label != label + ", out of place") at += lines_each;
    if (at == lines.size()) {
      const std::string_view colour = kColours[at / lines_each % std::size(kColours)];
      lines.push_back({label + ", out of place", colour, false, {}, {}});
      if (lines_each == 2) lines.push_back({label + ", in place", colour, true, {}, {}});
    }
    add(lines[at], row, row.out_of_place);
    if (lines_each == 2) add(lines[at + 1], row, row.in_place);
  }
  return lines;
}

std::string legend(const std::vector<Series>& lines, double top) {
  std::string svg;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double x = kLeft + kLegendColumn * static_cast<double>(i % kLegendColumns);
    const double y = top + kLegendRow * static_cast<double>(i / kLegendColumns);
    svg += fmt::format(
        "<g stroke=\"{0}\"><polyline{1} points=\"{2:.1f},{3:.1f} {4:.1f},{3:.1f}\"/>"
        "<circle cx=\"{5:.1f}\" cy=\"{3:.1f}\" r=\"2.6\" fill=\"{6}\"/></g>\n"
        "<text x=\"{7:.1f}\" y=\"{8:.1f}\">{9}</text>\n",
        lines[i].colour, lines[i].dashed ? " stroke-dasharray=\"6 4\"" : "", x, y, x + 30, x + 15,
        lines[i].dashed ? std::string_view("#ffffff") : lines[i].colour, x + 38, y + 4,
        escaped(lines[i].label));
  }
  return svg;
}

constexpr const char* kStyle = R"(<style>
text { font-family: "DejaVu Sans", Verdana, Helvetica, sans-serif; font-size: 12px; fill: #222; }
.head { font-size: 19px; font-weight: bold; }
.sub { fill: #666; }
.title { font-size: 13px; font-weight: bold; }
.tick { font-size: 11px; fill: #444; }
.grid { stroke: #d4d4d4; }
.minor { stroke: #efefef; }
.frame { fill: none; stroke: #888; }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
circle { stroke-width: 1.5; }
</style>
)";

}  // namespace

std::string to_svg(const Report& report, const Options& options) {
  const std::vector<Series> lines = lines_of(report, options);
  const double legend_top = kTop + kPanelHeight + 84;
  const std::size_t rows = (lines.size() + kLegendColumns - 1) / kLegendColumns;
  const double height = legend_top + kLegendRow * static_cast<double>(rows) + 8;
  const std::string machine = report.devices.empty() ? std::string() : report.devices[0].info;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\">\n{2}<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text class=\"head\" x=\"{3:.0f}\" y=\"30\">{4}</text>\n"
      "<text class=\"sub\" x=\"{3:.0f}\" y=\"49\">{5} ranks on {6}, {7}</text>\n",
      kWidth, height, kStyle, kLeft, name_of(options.what), report.devices.size(), escaped(machine),
      report.start_time);
  const std::string_view time =
      options.cpu_time ? "Processor time, \xc2\xb5s, over size" : "Time, \xc2\xb5s, over size";
  svg += Panel(kLeft, &Series::bandwidth, "Bus bandwidth, GB/s, over size", lines).draw();
  svg += Panel(kLeft + kPanelWidth + kGap, &Series::time, time, lines).draw();
  return svg + legend(lines, legend_top) + "</svg>\n";
}

}  // namespace tutti::perf
