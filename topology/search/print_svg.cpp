// Draws the rings that were found on a topology.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>
#include <utility>

#include "topology/search/plan.h"

namespace tutti {
namespace {

constexpr double kCentre = 260, kRadius = 200, kGpuRadius = 17, kWidth = 760, kHeight = 520;
constexpr std::size_t kMostDrawn = 16;
// The colours are apart for people who see red and green alike, too (Okabe and Ito), then darker.
constexpr std::array<std::string_view, kMostDrawn> kColours{
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a900", "#000000",
    "#004a73", "#8a3c00", "#00664a", "#804c69", "#945f00", "#2f7ba6", "#7a7000", "#666666"};

struct Point {
  double x, y;
};

Point of_gpu(int gpu, int gpus) {
  const double angle = 2 * std::numbers::pi * gpu / gpus - std::numbers::pi / 2;
  return {kCentre + kRadius * std::cos(angle), kCentre + kRadius * std::sin(angle)};
}

/// A port lies outside the circle, beside the GPU with its number.
Point of_port(int port, const Paths& paths) {
  const double angle =
      2 * std::numbers::pi * port / std::max(1, paths.ports()) - std::numbers::pi / 2;
  return {kCentre + (kRadius + 42) * std::cos(angle), kCentre + (kRadius + 42) * std::sin(angle)};
}

/// Returns an arrow that is bent to its left, the more the higher its number is, so that arrows
/// between the same GPUs lie side by side.
std::string arrow(Point from, Point to, std::size_t number, std::string_view colour, double width) {
  const double x = to.x - from.x, y = to.y - from.y, length = std::max(1.0, std::hypot(x, y));
  const double bend = 6 + 7 * static_cast<double>(number);
  const Point middle{(from.x + to.x) / 2 + bend * y / length,
                     (from.y + to.y) / 2 - bend * x / length};
  const auto trim = [&](Point end) {  // to the border of the GPU
    const double dx = middle.x - end.x, dy = middle.y - end.y;
    const double away = std::max(1.0, std::hypot(dx, dy));
    return Point{end.x + kGpuRadius * dx / away, end.y + kGpuRadius * dy / away};
  };
  const Point begin = trim(from), end = trim(to);
  return fmt::format(
      "<path d=\"M{:.1f},{:.1f} Q{:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"none\" stroke=\"{}\" "
      "stroke-width=\"{:.1f}\" marker-end=\"url(#to{})\"/>\n",
      begin.x, begin.y, middle.x, middle.y, end.x, end.y, colour, width, number);
}

std::string links_svg(const Paths& paths) {
  std::string text;
  for (int a = 0; a < paths.gpus(); ++a)
    for (int b = 0; b < a; ++b) {
      const Path& path = paths.between(a, b);
      if (path.kind != PathKind::nvl || path.hops() != 1) continue;
      const Point from = of_gpu(a, paths.gpus()), to = of_gpu(b, paths.gpus());
      text += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\" "
          "stroke-width=\"7\"/>\n",
          from.x, from.y, to.x, to.y);
    }
  return text;
}

std::string box(Point at, const std::string& shape, const std::string& label) {
  return fmt::format("{}<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", shape,
                     at.x, at.y + 5, label);
}

std::string ends_svg(const Paths& paths, bool ports) {
  std::string text;
  for (int gpu = 0; gpu < paths.gpus(); ++gpu) {
    const Point at = of_gpu(gpu, paths.gpus());
    text += box(at,
                fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"#d7f5d7\" "
                            "stroke=\"#333333\"/>",
                            at.x, at.y, kGpuRadius),
                fmt::format("{}", gpu));
  }
  for (int port = 0; ports && port < paths.ports(); ++port) {
    const Point at = of_port(port, paths);
    text += box(at,
                fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"30\" height=\"24\" "
                            "fill=\"#f7edb0\" stroke=\"#333333\"/>",
                            at.x - 15, at.y - 12),
                fmt::format("p{}", port));
  }
  return text;
}

std::string ring_svg(const Paths& paths, const Ring& ring, std::size_t number, double widest) {
  std::vector<Point> points;
  for (const int gpu : ring.gpus) points.push_back(of_gpu(gpu, paths.gpus()));
  if (ring.port >= 0) points.push_back(of_port(ring.port, paths));
  std::string text;
  const double width = 1 + 3 * ring.gb_per_s / widest;
  for (std::size_t at = 0; at < points.size() && points.size() > 1; ++at)
    text += arrow(points[at], points[(at + 1) % points.size()], number, kColours[number], width);
  const double line = 60 + 22 * static_cast<double>(number);
  return text + fmt::format(
                    "<rect x=\"545\" y=\"{:.0f}\" width=\"24\" height=\"6\" fill=\"{}\"/>"
                    "<text x=\"577\" y=\"{:.0f}\">{:.4g} GB/s, {}{}</text>\n",
                    line - 8, kColours[number], line, ring.gb_per_s, to_string(ring.worst),
                    ring.port < 0 ? "" : fmt::format(", port {}", ring.port));
}

}  // namespace

std::string to_svg(const Fabric& fabric, const TopologyPlan& plan) {
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"14\">\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"white\"/>\n<defs>\n",
      kWidth, kHeight);
  for (std::size_t number = 0; number < kColours.size(); ++number)
    text += fmt::format(
        "<marker id=\"to{}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" "
        "markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0,0 L8,4 "
        "L0,8 z\" fill=\"{}\"/></marker>\n",
        number, kColours[number]);
  text += "</defs>\n";
  if (plan.paths) text += links_svg(*plan.paths);
  std::string title = "no rings";
  if (plan.rings) {
    const std::vector<Ring>& rings = plan.rings->rings;
    const std::size_t drawn = std::min(rings.size(), kMostDrawn);
    for (std::size_t number = 0; number < drawn; ++number)
      text += ring_svg(*plan.paths, rings[number], number, rings[0].gb_per_s);
    title = fmt::format("{} rings, {:.4g} of at most {:.4g} GB/s", rings.size(),
                        plan.rings->gb_per_s, plan.rings->bound_gb_per_s);
    if (drawn < rings.size()) title += fmt::format("; {} are drawn", drawn);
  }
  if (plan.paths) text += ends_svg(*plan.paths, fabric.nodes > 1);
  return text +
         fmt::format("<text x=\"520\" y=\"28\" text-anchor=\"middle\">{}</text>\n</svg>\n", title);
}

}  // namespace tutti
