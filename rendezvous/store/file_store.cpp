#include "rendezvous/store/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "common/patience.h"
#include "common/text.h"
#include "rendezvous/launch/job_address.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstFilePause{1}, kLongestFilePause{50};
constexpr std::chrono::seconds kLeaving{5};
constexpr std::size_t kReadBytes = 4 << 20;  // of one read: several of the longest records fit
constexpr const char* kLeft = "tutti/left";

struct FileRecord {
  std::uint32_t key_bytes = 0, value_bytes = 0;
};
static_assert(sizeof(FileRecord) == 8);

std::string rank_key(int rank) { return fmt::format("tutti/rank/{}", rank); }

// Repeats `attempt` until it returns true, with pauses. Returns false once `patience` is over.
bool try_until(const Patience& patience, const std::function<bool()>& attempt) {
  assert(attempt != nullptr);
  for (milliseconds pause = kFirstFilePause;; pause = std::min(2 * pause, kLongestFilePause)) {
    if (attempt()) return true;
    if (patience.over()) return false;
    std::this_thread::sleep_until(
        std::min<Store::Deadline>(patience.deadline, steady_clock::now() + pause));
  }
}

void refuse_if_interrupted(const std::string& path) {
  if (is_interrupted())
    throw Error(ErrorKind::peer_lost,
                fmt::format("the wait for the store {} was interrupted", path));
}

}  // namespace

/// The open file, and the table of the records read from it so far.
class FileStore::File {
 public:
  File(const std::string& path, int rank, int size) : path_(path), rank_(rank), size_(size) {}
  explicit File(const std::string& path) : File(path, kFirstNewcomer, 0) {}

  // Returns false if there is no file.
  bool join_as_newcomer() {
    assert(rank_ == kFirstNewcomer);
    return open_file(0);
  }

  // Returns false if the file already lists the rank, or has just been removed.
  bool join(Deadline deadline) {
    assert(!joined_ && 0 <= rank_ && rank_ < size_);
    open_file(O_CREAT);
    const Lock lock(*this, deadline);
    struct stat info {};
    if (fstat(fd_.get(), &info) != 0 || info.st_nlink == 0) return false;
    catch_up();
    if (table_.find(rank_key(rank_)) != nullptr) return false;
    append(rank_key(rank_), "");
    joined_ = true;
    return true;
  }

  ~File() {
    if (!joined_) return;
    const Interruptible to_its_end(nullptr);
    try {
      const Lock lock(*this, steady_clock::now() + kLeaving);
      catch_up();
      const std::int64_t left = table_.sum(kLeft, 1);
      append(kLeft, fmt::format("{}", left));
      if (left == size_) unlink(path_.c_str());
    } catch (const std::exception&) {
      // The file stays; the next job at this path is told to remove it.
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void set(std::string_view key, std::string_view value, Deadline deadline) {
    const std::lock_guard own(mutex_);
    const Lock lock(*this, deadline);
    catch_up();
    append(key, value);
  }

  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) {
    const std::lock_guard own(mutex_);
    const Lock lock(*this, deadline);
    catch_up();
    const std::int64_t sum = table_.sum(key, amount);
    if (amount != 0) append(key, fmt::format("{}", sum));
    return sum;
  }

  // Throws `peer_lost` where `unless` has a value in place of `key`.
  bool look(std::string_view key, const Unless& unless, Deadline deadline, std::string& value) {
    const std::lock_guard own(mutex_);
    const Lock lock(*this, deadline);
    catch_up();
    const std::string* found = table_.find(key);
    if (found != nullptr) value = *found;
    const std::string* why = found != nullptr ? nullptr : table_.find_any(unless.keys);
    if (why != nullptr) throw Error(ErrorKind::peer_lost, *why);
    return found != nullptr;
  }

  int rank() const noexcept { return rank_; }
  const std::string& path() const noexcept { return path_; }

 private:
  // Locks the whole file against other processes.
  class Lock {
   public:
    Lock(const File& file, Deadline deadline) : fd_(file.fd_.get()) {
      if (try_until(deadline, [this] { return change(F_WRLCK); })) return;
      refuse_if_interrupted(file.path_);
      throw Error(ErrorKind::timeout,
                  fmt::format("{}: the store {} was locked by others until the deadline",
                              describe_rank(file.rank_), file.path_));
    }
    ~Lock() { change(F_UNLCK); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    bool change(short type) const {
      struct flock whole {};
      whole.l_type = type;
      whole.l_whence = SEEK_SET;
      return fcntl(fd_, F_OFD_SETLK, &whole) == 0;
    }
    const int fd_;
  };

  [[noreturn]] void refuse(ErrorKind kind, std::string_view why) const {
    throw Error(kind, fmt::format("{}: the store {}: {}", describe_rank(rank_), path_, why));
  }

  // Returns false if there is no file and none is to be created.
  bool open_file(int create) {
    fd_ = Fd(open(path_.c_str(), O_RDWR | create | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat info {};
    if (!fd_ && errno == ENOENT && create == 0) return false;
    if (!fd_ || fstat(fd_.get(), &info) != 0) refuse(ErrorKind::usage, std::strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
      refuse(ErrorKind::usage, "it is not a file of this user's alone (chmod 600)");
    if (info.st_nlink > 1)
      refuse(ErrorKind::usage, "it has another name, too (a hard link); use a file of its own");
    table_ = KeyTable();
    read_bytes_ = 0;
    return true;
  }

  // Reads all new records. Called under the lock. An incomplete record at the end, which a killed
  // rank has left, is not read, and the next record overwrites it.
  void catch_up() {
    assert(fd_ && read_bytes_ >= 0);
    while (read_some()) {
    }
  }

  // Reads some new records. Returns false if there was no complete one.
  bool read_some() {
    struct stat info {};
    if (fstat(fd_.get(), &info) != 0) refuse(ErrorKind::unavailable, std::strerror(errno));
    if (info.st_size < read_bytes_) refuse(ErrorKind::corrupt, "somebody has shortened it");
    std::string news(std::min<std::size_t>(info.st_size - read_bytes_, kReadBytes), '\0');
    const ssize_t got = pread(fd_.get(), news.data(), news.size(), read_bytes_);
    if (got < 0) refuse(ErrorKind::unavailable, std::strerror(errno));
    const off_t before = read_bytes_;
    std::string_view rest = std::string_view(news).substr(0, static_cast<std::size_t>(got));
    while (const auto record = fixed_part<FileRecord>(rest)) {
      if (record->key_bytes > kMaxKeyBytes || record->value_bytes > kMaxValueBytes)
        refuse(ErrorKind::corrupt, "it holds something else");
      const std::size_t bytes = sizeof *record + record->key_bytes + record->value_bytes;
      if (rest.size() < bytes) break;
      table_.set(rest.substr(sizeof *record, record->key_bytes),
                 rest.substr(sizeof *record + record->key_bytes, record->value_bytes));
      rest.remove_prefix(bytes);
      read_bytes_ += static_cast<off_t>(bytes);
    }
    return read_bytes_ > before;
  }

  // Writes a record at the end. Called under the lock, after catch_up().
  void append(std::string_view key, std::string_view value) {
    assert(fd_ && key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes);
    std::string bytes(bytes_of(FileRecord{static_cast<std::uint32_t>(key.size()),
                                          static_cast<std::uint32_t>(value.size())}));
    bytes.append(key).append(value);
    if (ftruncate(fd_.get(), read_bytes_) != 0) cannot_be_written(errno);
    // On a full disk a part of a record may be written; only the next call then says why.
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t put = pwrite(fd_.get(), bytes.data() + done, bytes.size() - done,
                                 read_bytes_ + static_cast<off_t>(done));
      if (put <= 0 && (put == 0 || errno != EINTR)) cannot_be_written(put == 0 ? ENOSPC : errno);
      if (put > 0) done += static_cast<std::size_t>(put);
    }
    table_.set(key, value);
    read_bytes_ += static_cast<off_t>(bytes.size());
  }

  [[noreturn]] void cannot_be_written(int why) const {
    refuse(ErrorKind::unavailable, fmt::format("it cannot be written: {}", std::strerror(why)));
  }

  const std::string path_;
  const int rank_, size_;
  bool joined_ = false;
  std::mutex mutex_;  // guards the members below, and the file among this process's threads
  Fd fd_;
  KeyTable table_;
  off_t read_bytes_ = 0;
};

FileStore::FileStore(const std::string& path, int rank, int size, Deadline deadline)
    : file_("the store", path, rank, size) {
  File& file = file_.get();
  if (try_until(deadline, [&] { return file.join(deadline); })) return;
  refuse_if_interrupted(path);
  throw Error(ErrorKind::timeout,
              fmt::format("rank {} stands in the store {} already: remove that file if it is an "
                          "earlier job's that was killed, and give every process a RANK of its own",
                          rank, path));
}

FileStore::FileStore(const std::string& path, Deadline deadline) : file_("the store", path) {
  File& file = file_.get();
  if (try_until(deadline, [&] { return file.join_as_newcomer(); })) return;
  refuse_if_interrupted(path);
  throw Error(ErrorKind::timeout,
              fmt::format("a newcomer found no store {} before the deadline: see whether the job "
                          "has started, with the same TUTTI_STORE",
                          path));
}

FileStore::~FileStore() = default;

void FileStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  check_key(key);
  check_value(key, value);
  file_.get().set(key, value, deadline);
}

std::string FileStore::get(std::string_view key, Deadline deadline) {
  return get_unless(key, {}, deadline);
}

std::string FileStore::get_unless(std::string_view key, const Unless& unless, Deadline deadline) {
  check_key(key);
  for (const std::string& other : unless.keys) check_key(other);
  File& file = file_.get();
  std::string value;
  const auto lock_by = std::max<Deadline>(deadline, steady_clock::now() + kLongestFilePause);
  const Patience patience{deadline, unless.given_up};
  const bool found = try_until(patience, [&] { return file.look(key, unless, lock_by, value); });
  if (!found && patience.is_given_up()) refuse_given_up(key);
  if (!found)
    throw Error(ErrorKind::timeout,
                fmt::format("{}: nobody has set {} in the store {} before the deadline",
                            describe_rank(file.rank()), shown(key), file.path()));
  return value;
}

std::int64_t FileStore::add(std::string_view key, std::int64_t amount, Deadline deadline) {
  check_key(key);
  return file_.get().add(key, amount, deadline);
}

void FileStore::wait(std::string_view key, Deadline deadline) {
  static_cast<void>(get(key, deadline));
}

}  // namespace tutti
