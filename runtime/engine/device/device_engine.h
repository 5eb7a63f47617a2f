// The engine for communicators whose ranks each have a GPU. A call is a kernel that walks the lanes
// of its program (records.h). The thread that makes the call gives the kernel to a stream at once;
// the owner of the communicator's engine then looks how far it has come, launches it again where
// its patience has ended, and tells of its failure.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/sync.h"
#include "devices/gpu_device.h"
#include "devices/gpu_words.h"
#include "runtime/engine/device/device_program.h"
#include "runtime/engine/engine.h"

namespace tutti {

/// A call whose kernel is given to a stream. It exists until the call has ended.
struct DeviceCall {
  /// start() launches the kernel, so that launch(), gate() and reached() are not called. While one
  /// such call is pending, all that come behind it are.
  bool launched_by_owner = false;
  /// The blocks of a variable call where the GPU reads them; null for other calls.
  const BlockTable::Block* table = nullptr;
  device::CallRecord record{};  ///< The argument of the launch that was last.
  device::DeviceProgram* program = nullptr;
  CallSignature signature;
};

/// Threads: the calling thread calls launch(), gate() and, while it owns the engine, bind(). The
/// owner of the engine calls the rest, and reached().
class DeviceEngine final : public Engine {
 public:
  /// The arguments outlive it. Throws `unavailable`.
  DeviceEngine(const device::Ends::Settings& settings, Recorder& recorder,
               std::shared_ptr<GpuDevice> gpu);
  ~DeviceEngine() override;

  GpuDevice& gpu() const noexcept { return *gpu_; }
  /// The stream for calls that the program orders by none.
  cuda::Stream own_stream() const noexcept { return own_; }

  /// Gives the first kernel of the next call to `stream`, behind everything that is on it. If
  /// `apart` is true, it runs beside what comes next on the stream. The GPU's context is current.
  /// Throws `unavailable` where the driver refuses; the communicator has to fail then.
  void launch(DeviceCall& call, BoundProgram& bound, const CallBuffers& buffers,
              cuda::Stream stream, bool apart);
  /// Has `stream` wait for the end of the call. Throws `unavailable`.
  void gate(const DeviceCall& call, cuda::Stream stream);
  /// Returns whether the stream has come to the call's kernel.
  bool reached(const DeviceCall& call) const noexcept;

  std::shared_ptr<BoundProgram> bind(std::vector<Program> stripes) override;
  bool start(BoundProgram& bound, CallBuffers& buffers, bool in_threads, int attempts) override;
  bool advance(int attempts) override;
  void stop() noexcept override;
  void forget_threads() noexcept override { forked_ = true; }
  int awaited(int above) const override;
  std::size_t memory_bytes() const noexcept override { return gpu_->memory_bytes(); }
  const CallSignature& call() const override { return signature_; }
  const UserReduction* reduction() const override { return nullptr; }

 private:
  std::byte* scratch(std::uint64_t bytes);
  void prepare(DeviceCall& call, BoundProgram& bound, const CallBuffers& buffers);
  void start_kernel(DeviceCall& call, cuda::Stream stream);
  void wait_for(const std::uint64_t& word_on_gpu, std::uint64_t value, cuda::Stream stream) const;
  bool attempt();
  void throw_if_mismatched() const;
  void forget_awaited() noexcept;
  bool is_quiet() const;
  void await_quiet() noexcept;
  void give_back_words() noexcept;

  const std::shared_ptr<GpuDevice> gpu_;
  const cuda::KernelDriver& driver_;
  device::Ends ends_;
  GpuWords::Words words_;
  device::Control* control_ = nullptr;  // in words_
  // The GPU finds words at these addresses, by which the host does not read them: those of
  // control_, and the ticket up to which a stream has come that runs calls apart.
  device::Control* control_on_gpu_ = nullptr;
  std::uint64_t* forks_on_gpu_ = nullptr;
  std::int32_t* awaited_on_gpu_ = nullptr;
  GpuDevice::Block counts_;
  GpuDevice::Block awaited_;
  cuda::Stream own_ = nullptr;    // for calls without a stream, and for those that run apart
  cuda::Stream again_ = nullptr;  // for further launches of a call; nothing on it waits
  std::vector<GpuDevice::Block> scratch_;  // the last one is in use; calls may still use the others
  sync::Atomic<std::uint64_t> launches_{0};  // the number of launches
  // Used by the calling thread alone, or while calls are pending that launched_by_owner says of by
  // the owner of the engine alone: the ticket of the call that was launched last.
  std::uint64_t issued_ = 0;
  // Used by the calling thread alone.
  std::uint64_t forked_at_ = 0;  // the ticket of the last call that runs apart
  // Used by the owner of the engine.
  DeviceCall* under_way_ = nullptr;
  CallSignature signature_;  // of the call under way, or of the last one
  bool rings_missing_ = true;
  bool stopped_ = false;
  bool forked_ = false;
};

}  // namespace tutti
