// tutti: lets a program find out whether a launcher started it, and as what.
#pragma once

#include <tutti/export.hpp>

namespace tutti {

/// Whether a launcher has started this process as one of its ranks: it has set RANK or WORLD_SIZE,
/// or offers PMIx (docs/launching.md). If true, Communicator::from_env() joins the launcher's job.
/// If false, from_env() throws `usage`, and the program may start ranks of its own. Any thread may
/// call it.
[[nodiscard]] TUTTI_API bool launched();

/// Whether this process is to come to a running job by Communicator::join(): no launcher has made
/// it a rank, and MASTER_ADDR and MASTER_PORT, or a tcp:// or file:// store in TUTTI_STORE, say
/// where the job is. `tutti-run --max-restarts` and `--join` start such processes. Any thread may
/// call it.
[[nodiscard]] TUTTI_API bool newcomer();

}  // namespace tutti
