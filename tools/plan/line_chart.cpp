#include "tools/plan/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace tutti::tools {
namespace {

// Colours of Okabe and Ito (2008), which colour-blind readers can tell apart.
constexpr std::array<std::string_view, 7> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                   "#e69f00", "#56b4e9", "#000000"};
constexpr double kWidth = 760, kHeight = 460, kLeft = 80, kRight = 190, kTop = 46, kBottom = 56;

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  }
  return result;
}

std::string bytes_label(double bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:g} {}", bytes, kUnits[unit]);
}

/// A logarithmic axis whose ends are powers of its base.
class Axis {
 public:
  Axis(double base, double least, double most, double begin, double end)
      : base_(base), begin_(begin), end_(end) {
    first_ = std::floor(std::log(least) / std::log(base) + 1e-9);
    last_ = std::max(first_ + 1, std::ceil(std::log(most) / std::log(base) - 1e-9));
  }
  double at(double value) const {
    const double power = std::log(value) / std::log(base_);
    return begin_ + (power - first_) / (last_ - first_) * (end_ - begin_);
  }
  std::vector<double> ticks() const {
    std::vector<double> values;
    const double step = std::max(1.0, std::ceil((last_ - first_) / 10));
    for (double power = first_; power <= last_ + 1e-9; power += step)
      values.push_back(std::pow(base_, power));
    return values;
  }

 private:
  double base_, begin_, end_, first_ = 0, last_ = 1;
};

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view colour) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2,
      y2, colour);
}

std::string grid(const LineChart& chart, const Axis& across, const Axis& up) {
  std::string svg;
  for (const double x : across.ticks()) {
    svg += line(across.at(x), kTop, across.at(x), kHeight - kBottom, "#dddddd");
    svg += text_at(across.at(x), kHeight - kBottom + 18, "middle",
                   chart.bytes ? bytes_label(x) : fmt::format("{:g}", x));
  }
  for (const double y : up.ticks()) {
    svg += line(kLeft, up.at(y), kWidth - kRight, up.at(y), "#dddddd");
    svg += text_at(kLeft - 8, up.at(y) + 4, "end", fmt::format("{:g}", y));
  }
  return svg;
}

std::string curve(const Curve& one, std::size_t number, const Axis& across, const Axis& up) {
  const std::string_view colour = kColours[number % kColours.size()];
  const std::string_view dashes = number < kColours.size() ? "" : " stroke-dasharray=\"6 3\"";
  std::string points, svg;
  for (std::size_t at = 0; at < one.x.size(); ++at) {
    points += fmt::format("{:.1f},{:.1f} ", across.at(one.x[at]), up.at(one.y[at]));
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                       across.at(one.x[at]), up.at(one.y[at]), colour);
  }
  svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n",
                     points, colour, dashes);
  const double y = kTop + 14 + 20 * static_cast<double>(number);
  svg += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
      "stroke-width=\"2\"{}/>\n",
      kWidth - kRight + 14, y - 4, kWidth - kRight + 38, y - 4, colour, dashes);
  return svg + text_at(kWidth - kRight + 44, y, "start", one.label);
}

}  // namespace

std::string to_svg(const LineChart& chart) {
  constexpr double kMost = std::numeric_limits<double>::max();
  double least_x = kMost, most_x = 0, least_y = kMost, most_y = 0;
  for (const Curve& one : chart.curves)
    for (std::size_t at = 0; at < one.x.size(); ++at) {
      least_x = std::min(least_x, one.x[at]);
      most_x = std::max(most_x, one.x[at]);
      least_y = std::min(least_y, one.y[at]);
      most_y = std::max(most_y, one.y[at]);
    }
  if (most_x <= 0) least_x = most_x = least_y = most_y = 1;
  const Axis across(chart.bytes ? 2 : 10, least_x, most_x, kLeft, kWidth - kRight);
  const Axis up(10, least_y, most_y, kHeight - kBottom, kTop);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += text_at((kLeft + kWidth - kRight) / 2, 26, "middle", chart.title);
  svg += grid(chart, across, up);
  svg += text_at((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle", chart.x_label);
  svg += fmt::format(
      "<text transform=\"translate(20 {:.1f}) rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      (kTop + kHeight - kBottom) / 2, escaped(chart.y_label));
  for (std::size_t number = 0; number < chart.curves.size(); ++number)
    if (!chart.curves[number].x.empty()) svg += curve(chart.curves[number], number, across, up);
  return svg + "</svg>\n";
}

}  // namespace tutti::tools
