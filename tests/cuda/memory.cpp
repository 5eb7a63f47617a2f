#include "tests/cuda/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tutti::stand_in {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMostFilled = std::size_t{16} << 20;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Address Memory::map(int file, std::size_t bytes) {
  void* const memory =
      mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? 0 : reinterpret_cast<Address>(memory);
}

// A file holds it, so that another process can map the same memory.
Address Memory::allocate(Allocation::Kind kind, std::size_t bytes, int ordinal) {
  const int file = memfd_create("cuda stand-in", MFD_CLOEXEC);
  if (file < 0) return 0;
  const Address address =
      ftruncate(file, static_cast<off_t>(whole_pages(bytes))) == 0 ? map(file, bytes) : 0;
  if (address == 0) {
    close(file);
    return 0;
  }
  std::memset(reinterpret_cast<void*>(address), 0xa5, std::min(bytes, kMostFilled));
  add({kind, address, bytes, ordinal, file});
  return address;
}

bool Memory::add(const Allocation& allocation) {
  const std::lock_guard lock(mutex_);
  return allocations_.emplace(allocation.begin, allocation).second;
}

bool Memory::remove(Address begin, Allocation::Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(begin);
  if (found == allocations_.end() || found->second.kind != kind) return false;
  if (found->second.file >= 0) {
    munmap(reinterpret_cast<void*>(begin), whole_pages(found->second.bytes));
    close(found->second.file);
  }
  allocations_.erase(found);
  return true;
}

std::optional<Allocation> Memory::find(Address address) const {
  const std::lock_guard lock(mutex_);
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return std::nullopt;
  --next;
  if (address - next->first >= next->second.bytes) return std::nullopt;
  return next->second;
}

bool Memory::holds(Address address, std::size_t bytes) const {
  const auto found = find(address);
  return !found || bytes <= found->bytes - (address - found->begin);
}

}  // namespace tutti::stand_in
