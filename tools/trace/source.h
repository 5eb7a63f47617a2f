// tutti-trace reads from here: the memory of processes of this machine, and dumps.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace tutti::tools {

/// Returns the processes that this user may look into and that have made a communicator.
std::vector<pid_t> find_processes();

/// Reads what the process has recorded, whether it runs or is stopped. Throws std::runtime_error,
/// which says why: there is no such process, it is not permitted, the process does not use tutti,
/// or it uses another version.
TracedProcess read_process(pid_t pid);

/// Reads a dump. Throws std::runtime_error if the file cannot be read or is no dump.
TracedProcess read_dump(const std::string& path);

/// Reads what the user has named: numbers are processes, and other words are dumps or folders of
/// dumps. If nothing is named, reads all processes that find_processes() returns and that have not
/// ended since. A dump in a folder that cannot be read is passed over, and `damaged` gets the
/// reason.
std::vector<TracedProcess> read_all(std::span<const std::string> named,
                                    std::vector<std::string>& damaged);

}  // namespace tutti::tools
