#include "transport/shm/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <tutti/error.hpp>

#include "transport/shm/available.h"

#ifndef MFD_NOEXEC_SEAL  // since Linux 6.3
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace tutti::shm {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::size_t kReserveAtOnce = 1 << 20;  // a signal undoes the fallocate that it interrupts
constexpr blkcnt_t kBlockBytes = 512;            // the unit of st_blocks in stat(2)
// Rings have a size that is configured, and buffers one that the program has asked for.
constexpr std::string_view kUseLess =
    "allocate smaller buffers, lower TUTTI_RING_BYTES, or run fewer ranks on this machine";
static_assert(kReserveAtOnce % 4096 == 0, "whole pages");

[[noreturn]] void refuse(std::size_t bytes, const std::string& what, const std::string& why) {
  throw Error(ErrorKind::unavailable,
              fmt::format("no shared memory for {} ({} bytes): {}", what, bytes, why));
}

std::string reason_of(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE: return "too many open files; raise the limit (ulimit -n)";
    case ENOMEM:
    case ENOSPC: return fmt::format("out of memory; {}", kUseLess);
    default: return std::strerror(error);
  }
}

// Checks the limits at which the kernel would send a signal or kill a process instead of returning
// an error.
void check_limits(std::size_t bytes, const std::string& what, Allowance& allowance) {
  rlimit file{};
  if (getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur != RLIM_INFINITY &&
      bytes > file.rlim_cur)
    refuse(bytes, what,
           fmt::format("files are limited to {} bytes (and so is this memory); raise ulimit -f",
                       file.rlim_cur));
  if (const auto available = allowance.refuse(bytes, std::chrono::steady_clock::now()))
    refuse(bytes, what,
           fmt::format("only {} bytes of memory are left to this process; {}, or raise its memory "
                       "limit",
                       *available, kUseLess));
}

Fd make_file(std::size_t bytes, const std::string& what) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd file(memfd_create("tutti", flags | MFD_NOEXEC_SEAL));
  if (!file && errno == EINVAL) file.reset(memfd_create("tutti", flags));
  if (!file) refuse(bytes, what, reason_of(errno));
  return file;
}

void reserve(const Fd& file, std::size_t bytes, const std::string& what) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t now = std::min(bytes - done, kReserveAtOnce);
    if (fallocate(file.get(), 0, static_cast<off_t>(done), static_cast<off_t>(now)) == 0)
      done += now;
    else if (errno != EINTR)
      refuse(bytes, what, reason_of(errno));
  }
}

// Maps the file and touches all pages now: that takes 0.1 ms for 1 MiB, where faults in the first
// operation would take 0.3 ms.
Mapping map(const Fd& file, std::size_t bytes, Access access, const std::string& what) {
  const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) refuse(bytes, what, reason_of(errno));
  return {data, bytes};
}

}  // namespace

Mapping::~Mapping() {
  assert((data_ == nullptr) == (bytes_ == 0));
  if (data_ != nullptr) munmap(data_, bytes_);
}

Memory make_memory(std::size_t bytes, Access peers, const std::string& what) {
  Allowance once;
  return make_memory(bytes, peers, what, once);
}

Memory make_memory(std::size_t bytes, Access peers, const std::string& what, Allowance& allowance) {
  assert(bytes > 0 && !what.empty());
  check_limits(bytes, what, allowance);
  Memory memory;
  memory.fd = make_file(bytes, what);
  reserve(memory.fd, bytes, what);
  memory.mapping = map(memory.fd, bytes, Access::write, what);
  // The file is sealed after it has been mapped here, because F_SEAL_FUTURE_WRITE forbids every
  // later writable mapping.
  const int seals = kSizeSeals | F_SEAL_SEAL | (peers == Access::read ? F_SEAL_FUTURE_WRITE : 0);
  if (fcntl(memory.fd.get(), F_ADD_SEALS, seals) != 0)
    refuse(bytes, what, fmt::format("its size cannot be sealed: {}", std::strerror(errno)));
  return memory;
}

Mapping map_received(const Fd& fd, std::size_t bytes, Access access, const std::string& what) {
  assert(fd);
  const auto check = [&](bool good, const std::string& found) {
    if (!good)
      throw Error(ErrorKind::corrupt,
                  fmt::format("what was handed over as {} is not {} bytes of sealed, reserved "
                              "memory: {}; do all ranks run the same version?",
                              what, bytes, found));
  };
  struct stat status {};
  check(fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode), "it is no memory");
  check(bytes > 0 && status.st_size == static_cast<off_t>(bytes),
        fmt::format("it has {}", status.st_size));
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  check(seals >= 0 && (seals & kSizeSeals) == kSizeSeals, "its size is not sealed");
  const int mode = fcntl(fd.get(), F_GETFL) & O_ACCMODE;
  const bool writable = mode == O_RDWR && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0;
  check(access == Access::read ? mode != O_WRONLY : writable, "it may not be accessed so");
  check(status.st_blocks >= static_cast<blkcnt_t>(bytes) / kBlockBytes, "it is not reserved");
  return map(fd, bytes, access, what);
}

}  // namespace tutti::shm
