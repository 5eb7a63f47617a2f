// What our own algorithms share beside the verbs of tutti/schedule.hpp.
#pragma once

#include <tutti/schedule.hpp>

#include "collectives/algorithms/algorithms.h"

namespace tutti::collectives {

/// Any collective of a single rank: its input is its result.
Schedule plan_alone(const PlanRequest& request);

}  // namespace tutti::collectives
