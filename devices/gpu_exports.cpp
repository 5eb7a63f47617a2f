#include "devices/gpu_exports.h"

#include <algorithm>
#include <cassert>

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

}  // namespace

GpuExports& GpuExports::of_process() {
  static GpuExports exports;
  return exports;
}

GpuExports::Piece GpuExports::take(const GpuDevice& gpu, std::size_t bytes) {
  const std::size_t whole = rounded(bytes + kLastWord, kPieceAlign);
  const std::lock_guard lock(mutex_);
  Block* block = with_room(gpu.ordinal(), whole);
  if (block == nullptr) {
    collect(gpu);
    block = with_room(gpu.ordinal(), whole);
  }
  if (block == nullptr) block = &allocate(gpu, whole);
  SystemRandom random;
  const Piece piece{
      block->memory + block->used, bytes, random.next(), gpu.ordinal(), block->handle, block->used};
  block->out.push_back({piece, false});
  block->used += whole;
  return piece;
}

GpuExports::Block* GpuExports::with_room(int ordinal, std::size_t bytes) {
  for (Block& block : blocks_)
    if (block.ordinal == ordinal && block.bytes - block.used >= bytes) return &block;
  return nullptr;
}

GpuExports::Block& GpuExports::allocate(const GpuDevice& gpu, std::size_t bytes) {
  const cuda::KernelDriver& driver = gpu.driver();
  blocks_.reserve(blocks_.size() + 1);
  Block block;
  block.bytes = rounded(bytes, kBlockUnit);
  block.ordinal = gpu.ordinal();
  cuda::Address address = 0;
  cuda::check(driver, driver.allocate(&address, block.bytes), "memory of a GPU for its peers");
  const cuda::Result result = driver.export_memory(&block.handle, address);
  if (result != cuda::kSuccess) driver.free(address);
  cuda::check(driver, result, "a handle by which other processes map a GPU's memory");
  block.memory = reinterpret_cast<std::byte*>(address);
  return blocks_.emplace_back(std::move(block));
}

template <typename Use>
void GpuExports::with(const Piece& piece, Use&& use) noexcept {
  const std::lock_guard lock(mutex_);
  for (Block& block : blocks_)
    for (auto out = block.out.begin(); out != block.out.end(); ++out)
      if (out->piece.memory == piece.memory) return use(block, out);
  assert(false);
}

void GpuExports::give_back(const Piece& piece) noexcept {
  with(piece, [](Block& block, auto out) {
    block.out.erase(out);
    if (block.out.empty()) block.used = 0;
  });
}

void GpuExports::leave(const Piece& piece) noexcept {
  with(piece, [](Block&, auto out) { out->left = true; });
}

std::optional<GpuExports::Piece> GpuExports::find(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  for (const Block& block : blocks_)
    for (const Out& out : block.out)
      if (out.piece.number == number && !out.left) return out.piece;
  return std::nullopt;
}

// Reads the last words of the pieces that were left.
void GpuExports::collect(const GpuDevice& gpu) {
  for (Block& block : blocks_) {
    if (block.ordinal != gpu.ordinal()) continue;
    std::erase_if(block.out, [&](const Out& out) {
      std::uint64_t word = 0;
      if (out.left) gpu.download(&word, out.piece.memory + out.piece.bytes, sizeof word);
      return word == kClosed;
    });
    if (block.out.empty()) block.used = 0;
  }
}

bool GpuExports::trim(const GpuDevice& gpu) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    collect(gpu);
  } catch (const Error&) {  // What cannot be read stays.
  }
  std::erase_if(blocks_, [&](const Block& block) {
    const bool unused = block.ordinal == gpu.ordinal() && block.out.empty();
    if (unused) gpu.driver().free(cuda::address_of(block.memory));
    return unused;
  });
  return std::none_of(blocks_.begin(), blocks_.end(),
                      [&](const Block& block) { return block.ordinal == gpu.ordinal(); });
}

}  // namespace tutti
