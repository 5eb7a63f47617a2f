// A store in a file that all ranks see: for machines with a shared file system and no way in by
// TCP.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>

#include <tutti/store.hpp>

#include "common/fd.h"
#include "common/process_owned.h"
#include "rendezvous/store/key_table.h"

namespace tutti {

/// Records (key, value) one after the other, of which the last counts, written and read under a
/// lock on the file (fcntl's, which NFS passes on). Waiting is looking again and again. Who may
/// join is who may open the file: it is the user's alone. Nobody notices here that a rank has
/// ended: calls end by their deadline.
///
/// The last rank to leave removes the file. Thread-safe. In a forked child every call throws
/// `usage`.
class FileStore final : public Store {
 public:
  /// Joins as `rank` of `size`; makes the file where there is none. Throws `usage` for a file that
  /// is not this user's alone or cannot be had, and `timeout` where `rank` stands in it until the
  /// deadline: of an earlier job that was killed, or of another process.
  FileStore(const std::string& path, int rank, int size, Deadline deadline);
  ~FileStore() override;

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;

 private:
  class File;
  ProcessOwned<File> file_;
};

}  // namespace tutti
