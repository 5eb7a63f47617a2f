// Reads the environment variables of nccl-tests.
#pragma once

#include "perf/options.h"

namespace tutti::perf {

/// Reads the environment variables of nccl-tests. Variables that would silently change what is
/// measured are refused.
void read_environment(Options& options);

}  // namespace tutti::perf
