// Reads whole files of limited size.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

struct stat;

namespace tutti {

/// Returns the content of the plain file `path`. `what` says in errors which file it is, for
/// example "TUTTI_CONFIG_FILE". Throws `usage` with the reason for anything that is not a readable
/// plain file of at most `most_bytes`: opening a pipe could block forever, and reading a device
/// need not end. The file's status is written to *status, if that is not null.
std::string read_file(std::string_view what, const std::string& path, std::size_t most_bytes,
                      struct stat* status = nullptr);

}  // namespace tutti
