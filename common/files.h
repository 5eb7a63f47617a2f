// Reads whole files of limited size, and opens files to write them.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/fd.h"

struct stat;

namespace tutti {

/// Opens a file to write it, with flags of open(2) besides (O_CREAT and so on). Its number is none
/// of the standard streams', which the process may have closed: what others write to those must not
/// go into the file. Returns null, and the reason in errno, where that fails.
inline std::FILE* open_to_write(const std::string& path, int flags) noexcept {
  Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666));
  if (!file) return nullptr;
  std::FILE* const stream = fdopen(file.get(), (flags & O_APPEND) != 0 ? "a" : "w");
  if (stream != nullptr) file.release();
  return stream;
}

/// Returns the content of the plain file `path`. `what` says in errors which file it is, for
/// example "TUTTI_CONFIG_FILE". Throws `usage` with the reason for anything that is not a readable
/// plain file of at most `most_bytes`: opening a pipe could block forever, and reading a device
/// need not end. The file's status is written to *status, if that is not null.
std::string read_file(std::string_view what, const std::string& path, std::size_t most_bytes,
                      struct stat* status = nullptr);

}  // namespace tutti
