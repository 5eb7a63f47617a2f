// tutti: what a program asks before it joins a launcher's job.
#pragma once

#include <tutti/export.hpp>

namespace tutti {

/// Whether a launcher has started this process as one of its ranks: it has set RANK or WORLD_SIZE,
/// or speaks PMIx (docs/launching.md). Then Communicator::from_env() joins the launcher's job;
/// where this is false, it is `usage`, and the program may start ranks of its own. Any thread.
[[nodiscard]] TUTTI_API bool launched();

}  // namespace tutti
