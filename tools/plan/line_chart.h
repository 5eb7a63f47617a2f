// Draws curves as a picture.
#pragma once

#include <string>
#include <vector>

namespace tutti::tools {

struct Curve {
  std::string label;
  std::vector<double> x, y;  ///< As many of each, greater than 0.
};

struct LineChart {
  std::string title, x_label, y_label;
  bool bytes = false;  ///< Whether x is a number of bytes, which is written as 64 KiB.
  std::vector<Curve> curves;
};

/// Returns the chart as SVG, with logarithmic axes; curves without points are left out. The text is
/// escaped.
std::string to_svg(const LineChart& chart);

}  // namespace tutti::tools
