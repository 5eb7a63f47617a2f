// Makes a ring that lies in the memory of the reader's GPU: the host of each end runs a state
// machine. transport/gpu_place.h defines what the two say to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "devices/gpu_device.h"
#include "devices/gpu_exports.h"
#include "transport/gpu_place.h"
#include "transport/ring/ring_view.h"

namespace tutti::cuda_ipc {

/// Says where the ring lies. The decision is open until both ends know the same.
enum class Decision { open, host, gpu };

/// Holds what an end needs, all of which outlives the end. `stream` has nothing on it that waits,
/// and `result` is a word in pinned memory that nobody else uses. Before an end is destroyed, what
/// it has given to the stream has ended.
struct EndContext {
  GpuDevice& gpu;
  cuda::Stream stream;
  std::uint64_t* result;
  GpuExports::Ends ends;
};

/// The end that receives. It is not thread-safe. The GPU's context is current in all functions, and
/// no function waits for the peer.
class ReadingEnd {
 public:
  ReadingEnd(const EndContext& context, const RingView& ring);
  ~ReadingEnd();
  ReadingEnd(const ReadingEnd&) = delete;
  ReadingEnd& operator=(const ReadingEnd&) = delete;

  /// Goes on as far as the peer has come.
  Decision step();
  /// Returns where this GPU finds the lines, once the decision is Decision::gpu; data() does so for
  /// the payloads behind them.
  std::byte* lines() const noexcept { return piece_.memory; }
  std::byte* data() const noexcept;
  /// Returns the reason, once the decision is Decision::host.
  const std::string& why() const noexcept { return why_; }

 private:
  void offer();
  Decision check();
  Decision stay_on_host(GpuPlace::Reader said, std::string why);

  const EndContext context_;
  GpuPlace& place_;
  const std::size_t data_bytes_;
  GpuExports::Piece piece_;
  bool had_written_ = false;  // The writer had ended its pattern before the last look.
  bool looking_ = false;
  Decision decision_ = Decision::open;
  std::string why_;
};

/// Does for the end that sends what ReadingEnd does for the one that receives.
class WritingEnd {
 public:
  WritingEnd(const EndContext& context, const RingView& ring);
  ~WritingEnd();
  WritingEnd(const WritingEnd&) = delete;
  WritingEnd& operator=(const WritingEnd&) = delete;

  Decision step();
  std::byte* lines() const noexcept { return memory_; }
  std::byte* data() const noexcept;
  const std::string& why() const noexcept { return why_; }

 private:
  void map();
  void map_in_process(const GpuExports::Piece& piece);
  void map_of_process(const GpuPlace::Offer& offer);
  void write(std::uint64_t seed);
  void close() noexcept;
  Decision stay_on_host(std::string why);

  const EndContext context_;
  GpuPlace& place_;
  const std::size_t data_bytes_;
  const bool fresh_;  // No message has gone through the ring.
  std::byte* memory_ = nullptr;
  cuda::Address imported_ = 0;  // The driver has mapped the memory at this address.
  Decision decision_ = Decision::open;
  std::string why_;
};

}  // namespace tutti::cuda_ipc
