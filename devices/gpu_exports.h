// Hands out memory of this process's GPUs that peers write. A peer is another GPU of the process,
// or a GPU of another process, which maps the memory.
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
/// its peer has said, in its last word, that it writes there no more. A block that another process
/// has mapped is never freed, because a driver need not survive that before all have unmapped it.
/// Thread-safe; no lock is held while the driver is called, which may wait.
class GpuExports {
 public:
  /// Names the ranks of a ring's two ends.
  struct Ends {
    int reader = -1, writer = -1;
    bool operator==(const Ends&) const = default;
  };
  /// Describes a piece of memory in a block that other processes can map.
  struct Piece {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;     ///< The last word is not counted.
    std::uint64_t number = 0;  ///< It is random, so that only those who were told know it.
    int ordinal = -1;          ///< The piece is in the memory of this GPU.
    Ends ends;
    cuda::IpcHandle handle{};  ///< By this handle another process maps the block.
    std::uint64_t offset = 0;  ///< The piece begins so many bytes into the block.
  };
  /// Says what a peer may still do with a piece that its user gives back.
  enum class Peer {
    never_mapped,  ///< Nothing, and it never has mapped it.
    closed,        ///< Nothing any more.
    may_write,     ///< It writes until its last word says otherwise.
  };

  /// A peer writes this value to the word behind a piece when it writes there no more.
  static constexpr std::uint64_t kClosed = 0x7475'7474'6943'4c53;

  /// It is never destroyed, since communicators may be destroyed as late as the process allows.
  static GpuExports& of_process();

  /// Returns memory of the GPU, whose context is current, for a ring between `ends`. Throws
  /// `unavailable` if there is none, or if it cannot be exported.
  Piece take(const GpuDevice& gpu, std::size_t bytes, const Ends& ends);
  void give_back(const Piece& piece, Peer peer) noexcept;
  /// Returns the piece of this number for a ring between `ends`, if it is out, for a writer in the
  /// same process.
  std::optional<Piece> find(std::uint64_t number, const Ends& ends);

  /// Frees what is of no more use in the memory of this GPU, whose context is current. Returns
  /// whether nothing is left.
  bool trim(const GpuDevice& gpu) noexcept;

 private:
  struct Out {
    Piece piece;
    bool in_process = false;  // A writer of this process has found it.
    bool left = false;        // It stays in the list until its last word is there.
  };
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::size_t used = 0;
    std::uint64_t context = 0;  // The memory exists as long as the context of this number.
    cuda::IpcHandle handle{};
    bool mapped_elsewhere = false;
    int readers =
        0;  // Counts the threads that read last words in it, which keep it from being freed.
    std::vector<Out> out;
  };

  std::optional<Piece> cut(const GpuDevice& gpu, std::size_t bytes, const Ends& ends);
  static Block allocate(const GpuDevice& gpu, std::size_t bytes);
  void collect(const GpuDevice& gpu);

  mutable sync::Mutex mutex_;
  std::vector<Block> blocks_;  // guarded by mutex_
};

}  // namespace tutti
