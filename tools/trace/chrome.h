// A job as a trace that Perfetto (https://ui.perfetto.dev) and chrome://tracing show.
#pragma once

#include <string>

#include "trace/job.h"

namespace tutti::tools {

/// Returns the JSON of the "Trace Event Format": ranks are processes, communicators are their
/// threads, collectives are complete events, and transfers, which overlap, are asynchronous ones.
/// Times are microseconds since the first call.
std::string to_chrome(const TracedJob& job);

}  // namespace tutti::tools
