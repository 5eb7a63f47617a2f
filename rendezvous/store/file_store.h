// A store in a file that all ranks can access, for machines that share a file system but cannot
// reach each other by TCP.
#pragma once

#include <string>

#include <tutti/store.hpp>

#include "common/fd.h"
#include "common/process_owned.h"
#include "rendezvous/store/key_table.h"

namespace tutti {

/// The file is a sequence of records (key, value), of which the last one for a key is valid. They
/// are read and written under an fcntl lock on the file, which NFS supports. Calls that wait for a
/// key poll the file. Any process that can open the file may join; only the user's own processes
/// can. The store does not detect that a rank has ended: calls that wait for it end at their
/// deadline.
///
/// The last rank to leave, not counting newcomers, removes the file. Thread-safe. In a forked child
/// every call throws `usage`.
class FileStore final : public Store {
 public:
  /// Joins as `rank` of `size`, and creates the file if it does not exist. Throws `usage` if the
  /// file cannot be opened or other users have access to it, and `timeout` if the file still lists
  /// `rank` at the deadline, because an earlier job was killed or another process has this rank.
  FileStore(const std::string& path, int rank, int size, Deadline deadline);
  /// Joins the store of a running job as a newcomer, once the file exists. Throws `usage` like the
  /// above, and `timeout` if there is no file at the deadline.
  FileStore(const std::string& path, Deadline deadline);
  ~FileStore() override;

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;
  std::string get_unless(std::string_view key, const Unless& unless, Deadline deadline) override;

 private:
  class File;
  ProcessOwned<File> file_;
};

}  // namespace tutti
