// Pinned words by which the host, kernels and streams of the program wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/sync.h"
#include "devices/gpu_device.h"

namespace tutti {

/// Hands out words in pinned memory and takes them back. A stream may wait for such a word when
/// everything else of its user is gone, so words are never freed, and belong to the process. The
/// numbers in them only rise: the next user's begin where those of the last one ended, so that
/// whoever waits late finds that its number was reached. Thread-safe.
class GpuWords {
 public:
  static constexpr std::size_t kBytes = 256;
  struct Words {
    std::byte* memory = nullptr;  ///< It has kBytes bytes, aligned to 64.
    std::uint64_t reached = 0;    ///< No number of an earlier user is higher.
  };

  /// It is never destroyed, since communicators may be destroyed as late as the process allows.
  static GpuWords& of_process();

  /// Returns words that the GPU, whose context is current, can reach. They are 0 where `reached` is
  /// 0. Throws `unavailable` if there is no pinned memory.
  Words take(const GpuDevice& gpu);
  /// Takes back words whose user stores nothing into them any more, nor do its kernels.
  void give_back(const GpuDevice& gpu, const Words& words) noexcept;

 private:
  struct Unused {
    Words words;
    int ordinal = -1;           // The GPU's.
    std::uint64_t context = 0;  // The memory exists as long as the context of this number.
  };

  sync::Mutex mutex_;
  // Both are guarded by mutex_. unused_ has room for all words, so that giving some back never
  // allocates.
  std::vector<Unused> unused_;
  std::size_t made_ = 0;
};

}  // namespace tutti
