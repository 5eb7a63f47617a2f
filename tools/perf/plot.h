// A picture of a table.
#pragma once

#include <string>

#include "perf/json.h"
#include "perf/options.h"

namespace tutti::perf {

/// An SVG document that needs nothing else: bus bandwidth and time over size, both axes
/// logarithmic; solid out of place, dashed in place, a colour for each type, reduction and root. A
/// later cycle (-N) adds its points to the line of the first. What is 0 has no place on the axes
/// and is left out.
[[nodiscard]] std::string to_svg(const Report& report, const Options& options);

}  // namespace tutti::perf
