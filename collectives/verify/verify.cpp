#include <algorithm>

#include <tutti/error.hpp>
#include <tutti/schedule.hpp>

#include "collectives/verify/checks.h"

namespace tutti {
namespace {

int farthest_back(std::span<const Schedule> schedules) {
  int back = 0;
  for (const Schedule& schedule : schedules)
    for (const Lane& lane : schedule.lanes)
      for (const Step& step : lane.steps)
        if (step.after.lane >= 0) back = std::max(back, step.after.pieces_back);
  return back;
}

}  // namespace

Verdict verify(std::span<const Schedule> schedules, const VerifyOptions& options) {
  if (options.window < 1 || options.pieces < 1 || options.operations < 1)
    throw Error(ErrorKind::usage, "verify: window, pieces and operations start at 1");
  using namespace collectives;
  try {
    check_shape(schedules);
    VerifyOptions unrolled = options;
    const int back = farthest_back(schedules);
    if (schedules[0].what == Collective::barrier)
      unrolled.pieces = 1;  // an empty message is never cut
    else if (back > 0)
      unrolled.pieces = std::max(options.pieces, back + 2);
    for (const Schedule& schedule : schedules) check_races(schedule, unrolled);
    check_run(schedules, unrolled);
  } catch (const Rejected& rejected) {
    return {.ok = false, .why = rejected.why, .too_large = rejected.too_large};
  }
  return {};
}

}  // namespace tutti
