// Memory of this process's GPUs that peers write: other GPUs of the process, and GPUs of other
// processes, which map it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/sync.h"
#include "devices/gpu_device.h"

namespace tutti {

/// Hands out pieces of exported memory and takes them back. A peer may still have a piece mapped
/// when its user is gone, so the memory belongs to the process: a piece is handed out again once
/// its peer has said, in its last word, that nobody writes it any more. Thread-safe.
class GpuExports {
 public:
  /// A piece of memory in a block that other processes can map.
  struct Piece {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;     ///< Without the last word.
    std::uint64_t number = 0;  ///< Random: only whoever was told knows it.
    int ordinal = -1;          ///< The GPU's.
    cuda::IpcHandle handle{};  ///< The block's.
    std::uint64_t offset = 0;  ///< The offset of the piece in the block.
  };

  /// The value that a peer writes to the word behind a piece when it writes there no more.
  static constexpr std::uint64_t kClosed = 0x7475'7474'6943'4c53;

  static GpuExports& of_process();

  /// Returns memory of the GPU, whose context is current. Throws `unavailable` if there is none, or
  /// if it cannot be exported.
  Piece take(const GpuDevice& gpu, std::size_t bytes);
  /// Takes back a piece that no peer writes any more.
  void give_back(const Piece& piece) noexcept;
  /// Takes back a piece that a peer may write until it says otherwise.
  void leave(const Piece& piece) noexcept;
  /// Returns the piece of this number, if it is out, for a peer in the same process.
  std::optional<Piece> find(std::uint64_t number) const;

  /// Frees what no piece uses in the memory of this GPU, whose context is current. Returns whether
  /// nothing is left.
  bool trim(const GpuDevice& gpu) noexcept;

 private:
  struct Out {
    Piece piece;
    bool left = false;
  };
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::size_t used = 0;
    int ordinal = -1;
    cuda::IpcHandle handle{};
    std::vector<Out> out;
  };

  Block* with_room(int ordinal, std::size_t bytes);
  Block& allocate(const GpuDevice& gpu, std::size_t bytes);
  void collect(const GpuDevice& gpu);
  template <typename Use>
  void with(const Piece& piece, Use&& use) noexcept;

  mutable sync::Mutex mutex_;
  std::vector<Block> blocks_;  // guarded by mutex_
};

}  // namespace tutti
