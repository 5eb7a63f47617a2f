// Draws a table.
#pragma once

#include <string>

#include "perf/json.h"
#include "perf/options.h"

namespace tutti::perf {

/// Returns a self-contained SVG document with bus bandwidth and time over size, on logarithmic
/// axes. Lines are solid out of place and dashed in place, and there is a colour for each type,
/// reduction and root. A later cycle (-N) adds its points to the curve of the first. Zeros have no
/// place on the axes and are left out.
[[nodiscard]] std::string to_svg(const Report& report, const Options& options);

}  // namespace tutti::perf
