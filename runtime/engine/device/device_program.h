// A program as kernels read it: its records and the ends of its channels in the GPU's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "devices/gpu_device.h"
#include "runtime/engine/device/records.h"
#include "runtime/engine/engine.h"
#include "transport/channel.h"
#include "transport/ring_view.h"

namespace tutti::device {

/// The ends of one communicator's channels, which its programs share. They are in the GPU's memory,
/// and the rings are registered with its driver. For the owner of the communicator's engine.
class Ends {
 public:
  /// All arguments outlive it.
  Ends(GpuDevice& gpu, HostPins& pins, Transport& transport)
      : gpu_(gpu), pins_(pins), transport_(transport) {}
  ~Ends();
  /// For a forked child, in which the driver has registered nothing.
  void forget_pins() noexcept { pinned_.clear(); }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  /// Makes the ends of `ports` that are not known yet. Throws `unavailable`.
  void add(const std::vector<Program::Port>& sends, const std::vector<Program::Port>& receives,
           cuda::Stream stream);
  SendEnd* sender(const Program::Port& port) const;
  RecvEnd* receiver(const Program::Port& port) const;

  /// Hands over rings that peers have made since the last call. Returns whether there are ends
  /// whose peers have not made theirs. Throws `unavailable`.
  bool offer_rings();

 private:
  using Key = std::pair<int, int>;  // a peer and the number of a channel
  struct Receiver {
    RecvEnd* end = nullptr;
    OfferedRing* offered = nullptr;
    RecvChannel* channel = nullptr;
  };

  void pin(const RingView& ring);
  void add_sender(const Program::Port& port, cuda::Stream stream);
  void add_receiver(const Program::Port& port, cuda::Stream stream);
  std::byte* place(std::size_t bytes);

  GpuDevice& gpu_;
  HostPins& pins_;
  Transport& transport_;
  std::map<Key, SendEnd*> senders_;
  std::map<Key, Receiver> receivers_;
  std::vector<Receiver*> awaited_;  // those whose rings the peers have not made
  std::vector<void*> pinned_;
  std::vector<GpuDevice::Block> blocks_, pinned_blocks_;
  std::size_t used_ = 0, pinned_used_ = 0;  // of the last block of each kind
};

/// A program, all stripes of it, that the device engine has bound.
struct DeviceProgram final : BoundProgram {
  /// Copies the records to the GPU, whose context is current. Throws `unavailable`: where there is
  /// no memory, and for what no kernel does.
  DeviceProgram(std::vector<Program> stripes, std::shared_ptr<GpuDevice> gpu, Ends& ends,
                cuda::Stream stream);
  ~DeviceProgram();

  const cuda::Function kernel;
  std::uint32_t lanes = 0;
  std::uint32_t blocks = 0;
  const ProgramRecord* records = nullptr;
  Counts* counts = nullptr;
  std::uint32_t* claimed = nullptr;
  std::uint64_t runs = 0;           ///< How often a call of it was launched for the first time.
  std::uint64_t launches = 0;       ///< How often its kernel was launched at all.
  std::uint64_t scratch_bytes = 0;  ///< Of all stripes.

 private:
  void upload(const std::vector<Program>& stripes, const Ends& ends, cuda::Stream stream);

  const std::shared_ptr<GpuDevice> gpu_;
  GpuDevice::Block block_;
};

}  // namespace tutti::device
