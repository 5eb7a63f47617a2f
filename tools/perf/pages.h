// Memory for buffers that are measured.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace tutti::perf {

inline constexpr std::size_t kPageBytes = 4096;

struct FreePages {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Pages = std::unique_ptr<std::byte, FreePages>;

/// Allocates at least `bytes` bytes that begin at a page. They are written once, so that all pages
/// exist before anything is measured. Throws std::bad_alloc.
[[nodiscard]] inline Pages allocate_pages(std::size_t bytes) {
  const std::size_t whole = (bytes / kPageBytes + 1) * kPageBytes;
  Pages pages(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, whole)));
  if (pages == nullptr) throw std::bad_alloc();
  std::memset(pages.get(), 0, whole);
  return pages;
}

}  // namespace tutti::perf
