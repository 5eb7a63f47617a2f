// Declares memory that is registered with a queue pair over UCX.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/ucx/ucx_queue_pair.h"

namespace tutti::ucx {

/// Its key is drawn by lot, and stands for this memory on this queue pair alone. UCX maps the
/// memory once for all queue pairs. The worker's lock guards the members.
class UcxRegion final : public qp::Region {
 public:
  /// Throws `unavailable`.
  UcxRegion(UcxQueuePair& pair, std::byte* data, std::size_t bytes, bool readable);
  /// Waits until the peer reads nothing of it, a few seconds at most.
  ~UcxRegion() override;
  UcxRegion(const UcxRegion&) = delete;
  UcxRegion& operator=(const UcxRegion&) = delete;

  std::uint32_t local_key() const noexcept override { return key_; }
  std::uint32_t remote_key() const noexcept override { return key_; }

 private:
  friend class UcxQueuePair;
  static constexpr std::chrono::milliseconds kReadLimit{1000};

  /// Returns the memory that a peer asks to read, or null where it may not.
  const std::byte* find(std::uint64_t address, std::uint32_t bytes) const noexcept;

  const std::shared_ptr<Worker> worker_;
  UcxQueuePair* pair_;  // null once it has ended
  std::byte* const data_;
  const std::size_t bytes_;
  bool readable_;
  std::uint32_t key_ = 0;
  std::shared_ptr<Mapping> mapping_;
  std::uint32_t reads_ = 0;  // of the peer, that UCX works at
};

}  // namespace tutti::ucx
