#include "devices/gpu_exports.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include <tutti/error.hpp>

#include "common/random.h"

namespace tutti {
namespace {

// A block fills pages of a GPU, of which peers map the whole.
constexpr std::size_t kBlockUnit = std::size_t{2} << 20;
constexpr std::size_t kPieceAlign = 4096;
constexpr std::size_t kLastWord = 64;

constexpr std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Returns how many bytes a piece takes up in its block.
constexpr std::size_t whole(std::size_t bytes) { return rounded(bytes + kLastWord, kPieceAlign); }

// Returns whether the word behind the piece says that its peer writes there no more; a word that
// cannot be read does not say so.
bool has_last_word(const GpuDevice& gpu, const GpuExports::Piece& piece) {
  std::uint64_t word = 0;
  try {
    gpu.download(&word, piece.memory + piece.bytes, sizeof word);
  } catch (const Error&) {
  }
  return word == GpuExports::kClosed;
}

}  // namespace

GpuExports& GpuExports::of_process() {
  static GpuExports& exports = *new GpuExports();
  return exports;
}

GpuExports::Piece GpuExports::take(const GpuDevice& gpu, std::size_t bytes, const Ends& ends) {
  if (const auto piece = cut(gpu, bytes, ends)) return *piece;
  collect(gpu);
  if (const auto piece = cut(gpu, bytes, ends)) return *piece;
  for (;;) {
    Block block = allocate(gpu, whole(bytes));
    {
      const std::lock_guard lock(mutex_);
      blocks_.push_back(std::move(block));
    }
    if (const auto piece = cut(gpu, bytes, ends))
      return *piece;  // Another thread may have cut all of it.
  }
}

// Cuts a piece from a block that has room for it.
std::optional<GpuExports::Piece> GpuExports::cut(const GpuDevice& gpu, std::size_t bytes,
                                                 const Ends& ends) {
  SystemRandom random;
  const std::lock_guard lock(mutex_);
  for (Block& block : blocks_) {
    if (block.context != gpu.context_number() || block.bytes - block.used < whole(bytes)) continue;
    const Piece piece{block.memory + block.used,
                      bytes,
                      random.next(),
                      gpu.ordinal(),
                      ends,
                      block.handle,
                      block.used};
    block.out.push_back({piece});
    block.used += whole(bytes);
    return piece;
  }
  return std::nullopt;
}

GpuExports::Block GpuExports::allocate(const GpuDevice& gpu, std::size_t bytes) {
  const cuda::KernelDriver& driver = gpu.driver();
  Block block;
  block.bytes = rounded(bytes, kBlockUnit);
  block.context = gpu.context_number();
  cuda::Address address = 0;
  cuda::check(driver, driver.allocate(&address, block.bytes), "memory of a GPU for its peers");
  const cuda::Result result = driver.export_memory(&block.handle, address);
  if (result != cuda::kSuccess) driver.free(address);
  cuda::check(driver, result, "a handle by which other processes map a GPU's memory");
  block.memory = reinterpret_cast<std::byte*>(address);
  return block;
}

void GpuExports::give_back(const Piece& piece, Peer peer) noexcept {
  const std::lock_guard lock(mutex_);
  for (Block& block : blocks_)
    for (auto out = block.out.begin(); out != block.out.end(); ++out) {
      if (out->piece.number != piece.number) continue;
      if (peer != Peer::never_mapped && !out->in_process) block.mapped_elsewhere = true;
      out->left = peer == Peer::may_write;
      if (!out->left) block.out.erase(out);
      if (block.out.empty()) block.used = 0;
      return;
    }
  assert(false);
}

std::optional<GpuExports::Piece> GpuExports::find(std::uint64_t number, const Ends& ends) {
  const std::lock_guard lock(mutex_);
  for (Block& block : blocks_)
    for (Out& out : block.out) {
      if (out.piece.number != number || out.piece.ends != ends || out.left) continue;
      out.in_process = true;
      return out.piece;
    }
  return std::nullopt;
}

// Reads the last words of the pieces that were left, in blocks that nobody frees meanwhile.
void GpuExports::collect(const GpuDevice& gpu) {
  std::vector<Piece> left;
  std::vector<std::byte*> read;
  {
    const std::lock_guard lock(mutex_);
    for (Block& block : blocks_) {
      if (block.context != gpu.context_number()) continue;
      read.push_back(block.memory);
      for (const Out& out : block.out)
        if (out.left) left.push_back(out.piece);
    }
    for (Block& block : blocks_)
      if (block.context == gpu.context_number()) ++block.readers;
  }
  std::erase_if(left, [&](const Piece& piece) { return !has_last_word(gpu, piece); });
  const std::lock_guard lock(mutex_);
  for (Block& block : blocks_) {
    if (std::find(read.begin(), read.end(), block.memory) == read.end()) continue;
    --block.readers;
    std::erase_if(block.out, [&](const Out& out) {
      return std::any_of(left.begin(), left.end(),
                         [&](const Piece& piece) { return piece.number == out.piece.number; });
    });
    if (block.out.empty()) block.used = 0;
  }
}

bool GpuExports::trim(const GpuDevice& gpu) noexcept {
  std::vector<Block> unused;
  bool left = false;
  try {
    collect(gpu);
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < blocks_.size();) {
      Block& block = blocks_[i];
      const bool own = block.context == gpu.context_number();
      const bool kept = !block.out.empty() || block.mapped_elsewhere;
      left = left || (own && kept);
      if (own && !kept && block.readers == 0) {
        unused.push_back(block);
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  } catch (const std::bad_alloc&) {  // There is no memory for the list, so all blocks stay.
    left = true;
  }
  for (const Block& block : unused) gpu.driver().free(cuda::address_of(block.memory));
  return !left;
}

}  // namespace tutti
