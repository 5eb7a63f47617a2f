// Code that the built-in algorithms share, beside the verbs of tutti/schedule.hpp.
#pragma once

#include <tutti/schedule.hpp>

#include "collectives/algorithms/algorithms.h"

namespace tutti::collectives {

/// Plans any collective of a single rank, whose result is its input.
Schedule plan_alone(const PlanRequest& request);

}  // namespace tutti::collectives
