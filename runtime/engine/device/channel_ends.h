// Makes the ends of a communicator's channels as kernels use them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/log.h"
#include "devices/gpu_device.h"
#include "runtime/engine/device/records.h"
#include "transport/channel.h"
#include "transport/cuda_ipc/ring_ends.h"
#include "transport/ring/ring_view.h"

namespace tutti::device {

/// Holds the ends of one communicator's channels, which its programs share, in the GPU's memory.
/// A ring lies in the memory of its receiver's GPU where both GPUs can use it there; else it lies
/// in the host's memory, which is registered with the driver. In both cases the receiver's credits
/// are in the host's memory. The owner of the communicator's engine uses it, while the GPU's
/// context is current.
class Ends {
 public:
  struct Settings {
    Transport& transport;
    HostPins& pins;
    Log& log;
    int rank = 0;
    bool on_gpus = false;  ///< Whether rings may lie in the memory of GPUs.
  };
  /// All arguments outlive it.
  Ends(GpuDevice& gpu, const Settings& settings) : gpu_(gpu), settings_(settings) {}
  ~Ends();
  /// Gives everything up without a call of the driver, of which nothing exists in a forked child.
  void forget() noexcept;
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  /// Makes the ends of `ports` that are not known yet. Throws `unavailable`.
  void add(const std::vector<Program::Port>& sends, const std::vector<Program::Port>& receives);
  SendEnd* sender(const Program::Port& port) const;
  RecvEnd* receiver(const Program::Port& port) const;

  /// Hands over the rings whose places have been decided since the last call. Returns whether there
  /// are ends without a ring. Throws `unavailable`.
  bool offer_rings();

 private:
  using Key = std::pair<int, int>;  // a peer and the number of a channel
  // The host writes these for an end, in pinned memory.
  struct alignas(64) Word {
    OfferedRing offered;
    std::uint64_t result;  // It is what the kernel of the pattern says.
  };
  struct Sender {
    SendEnd* end = nullptr;
    Word* word = nullptr;
    RingView ring;
    std::unique_ptr<cuda_ipc::WritingEnd> on_gpu;
  };
  struct Receiver {
    RecvEnd* end = nullptr;
    Word* word = nullptr;
    RecvChannel* channel = nullptr;
    bool pinned = false;  // The peer has made the ring.
    std::unique_ptr<cuda_ipc::ReadingEnd> on_gpu;
  };

  void pin(const RingView& ring);
  void add_sender(const Program::Port& port);
  void add_receiver(const Program::Port& port);
  bool offer(int peer, Sender& sender);
  bool offer(int peer, Receiver& receiver);
  template <typename End>
  bool offer(int peer, const char* direction, Word& word, const RingView& ring, End* on_gpu);
  std::byte* place(std::size_t bytes);
  Word* word();
  cuda::Stream stream();

  GpuDevice& gpu_;
  const Settings settings_;
  std::map<Key, Sender> senders_;
  std::map<Key, Receiver> receivers_;
  std::vector<Key> open_senders_, open_receivers_;  // They have no ring yet.
  std::vector<void*> pinned_;
  std::vector<GpuDevice::Block> blocks_, pinned_blocks_;
  std::size_t used_ = 0, pinned_used_ = 0;  // of the last block of each kind
  cuda::Stream stream_ = nullptr;           // It has copies and patterns, and nothing on it waits.
};

}  // namespace tutti::device
