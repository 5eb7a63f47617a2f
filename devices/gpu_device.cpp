#include "devices/gpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "devices/gpu_exports.h"

namespace tutti {
namespace {

constexpr std::size_t kLeastBlock = 4096;

std::string text_of(const cuda::Uuid& uuid) {
  std::string text;
  for (const std::byte byte : uuid) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

/// The GPUs that are open. The list belongs to the process.
struct OpenGpus {
  sync::Mutex mutex;
  std::vector<std::weak_ptr<GpuDevice>> gpus;
};

OpenGpus& open_gpus() {
  static OpenGpus& gpus = *new OpenGpus();
  return gpus;
}

}  // namespace

void HostPins::pin(const cuda::KernelDriver& driver, void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto [found, fresh] = counts_.try_emplace(memory, 0);
  if (fresh) {
    const cuda::Result result =
        driver.register_host(memory, bytes, cuda::kHostPortable | cuda::kHostMapped);
    if (result != cuda::kSuccess) counts_.erase(found);
    cuda::check(driver, result, "memory that ranks share, for a GPU");
  }
  ++found->second;
}

void HostPins::unpin(const cuda::KernelDriver& driver, void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(memory);
  assert(found != counts_.end() && found->second > 0);
  if (--found->second > 0) return;
  driver.unregister_host(memory);
  counts_.erase(found);
}

std::shared_ptr<GpuDevice> GpuDevice::open(int ordinal, bool wrap,
                                           std::span<const std::byte> image) {
  std::shared_ptr<GpuDevice> fresh(new GpuDevice(ordinal, wrap));
  OpenGpus& open = open_gpus();
  {
    // Where this thread has the last share of another GPU by now, that ends without the lock.
    std::vector<std::shared_ptr<GpuDevice>> others;
    const std::lock_guard lock(open.mutex);
    std::erase_if(open.gpus, [](const auto& each) { return each.expired(); });
    for (const auto& each : open.gpus) {
      auto gpu = each.lock();
      if (gpu == nullptr) continue;
      if (gpu->context_number_ == fresh->context_number_ && gpu->process_ == fresh->process_)
        return gpu;
      others.push_back(std::move(gpu));
    }
  }
  fresh->load(image);  // No lock is held: the driver may wait for kernels of other ranks.
  const std::lock_guard lock(open.mutex);
  open.gpus.push_back(fresh);
  return fresh;
}

void GpuDevice::keep_loaded(const std::shared_ptr<GpuDevice>& gpu) noexcept {
  const std::lock_guard lock(gpu->mutex_);
  gpu->self_ = gpu;
}

GpuDevice::GpuDevice(int ordinal, bool wrap)
    : driver_(cuda::KernelDriver::load()), process_(getpid()) {
  cuda::check(*driver_, driver_->initialize(0), "the start of the CUDA driver");
  int count = 0;
  cuda::check(*driver_, driver_->count_devices(&count), "the number of GPUs");
  if (count <= 0)
    throw Error(ErrorKind::unavailable, "the CUDA driver finds no GPU: set TUTTI_DEVICE=none");
  if (!wrap && ordinal >= count)
    throw Error(ErrorKind::unavailable,
                fmt::format("there is no GPU {}: the CUDA driver finds {}, from 0 on; give another "
                            "number, rank or none",
                            ordinal, count));
  ordinal_ = ordinal % count;
  cuda::check(*driver_, driver_->device(&device_, ordinal_), "a GPU");
  cuda::Uuid uuid{};
  cuda::check(*driver_, driver_->device_uuid(&uuid, device_), "a GPU's name");
  uuid_ = text_of(uuid);
  const auto number = [this](int attribute) {
    int value = 0;
    cuda::check(*driver_, driver_->device_attribute(&value, attribute, device_),
                "a GPU's place on the PCI bus");
    return value;
  };
  bus_ = fmt::format("{:04x}:{:02x}:{:02x}.0", number(cuda::kPciDomain), number(cuda::kPciBus),
                     number(cuda::kPciDevice));
  cuda::check(*driver_, driver_->retain_context(&context_, device_), "a GPU's context");
  const cuda::Result result = driver_->context_number(context_, &context_number_);
  if (result != cuda::kSuccess) driver_->release_context(device_);
  cuda::check(*driver_, result, "a GPU's context");
}

void GpuDevice::load(std::span<const std::byte> image) {
  if (image.empty())
    throw Error(ErrorKind::unavailable,
                "this build of tutti has no kernels for GPUs: build it where nvcc is (CUDA 13), or "
                "set TUTTI_DEVICE=none");
  const Current current(*this);
  cuda::check(*driver_, driver_->load_module(&module_, image.data()), "the kernels for a GPU");
}

GpuDevice::~GpuDevice() {
  if (getpid() != process_) return;
  try {
    if (module_ != nullptr) {
      const Current current(*this);
      release();
      // Peers may still write memory that was exported, which then keeps the context.
      if (!GpuExports::of_process().trim(*this)) return;
    }
  } catch (const Error&) {  // The program has destroyed the context, and the memory with it.
  }
  driver_->release_context(device_);
}

void GpuDevice::release() noexcept {
  for (const Block& block : unused_[0]) driver_->free(cuda::address_of(block.memory));
  for (const Block& block : unused_[1]) driver_->free_host(block.memory);
  driver_->unload_module(module_);
}

cuda::Function GpuDevice::kernel(const std::string& name) const {
  cuda::Function found = nullptr;
  const cuda::Result result = driver_->find_kernel(&found, module_, name.c_str());
  if (result != cuda::kSuccess)
    throw Error(ErrorKind::internal, fmt::format("there is no kernel {} (error {})", name, result));
  return found;
}

GpuDevice::Block GpuDevice::take(Kind kind, std::size_t bytes) {
  const auto number = static_cast<std::size_t>(kind);
  const std::size_t wanted = std::max(std::bit_ceil(bytes), kLeastBlock);
  {
    const std::lock_guard lock(mutex_);
    std::vector<Block>& unused = unused_[number];
    const auto found = std::find_if(unused.begin(), unused.end(),
                                    [&](const Block& block) { return block.bytes == wanted; });
    if (found != unused.end()) {
      const Block block = *found;
      *found = unused.back();
      unused.pop_back();
      return block;
    }
    unused.reserve(++blocks_[number]);
  }
  // No lock is held: the driver may wait for a thread that gives a block back.
  const Block block{allocate(kind, wanted), wanted};
  bytes_.fetch_add(wanted, std::memory_order_relaxed);
  return block;
}

std::byte* GpuDevice::allocate(Kind kind, std::size_t bytes) const {
  if (kind == Kind::device) {
    cuda::Address address = 0;
    cuda::check(*driver_, driver_->allocate(&address, bytes), "memory of a GPU");
    return reinterpret_cast<std::byte*>(address);
  }
  void* memory = nullptr;
  cuda::check(*driver_,
              driver_->allocate_host(&memory, bytes, cuda::kHostPortable | cuda::kHostMapped),
              "pinned memory");
  return static_cast<std::byte*>(memory);
}

void GpuDevice::give_back(Kind kind, const Block& block) noexcept {
  if (block.memory == nullptr) return;
  const std::lock_guard lock(mutex_);
  unused_[static_cast<std::size_t>(kind)].push_back(block);
}

void GpuDevice::upload(void* to, const void* from, std::size_t bytes, cuda::Stream stream) const {
  cuda::check(*driver_, driver_->copy(cuda::address_of(to), cuda::address_of(from), bytes, stream),
              "a copy to a GPU");
  cuda::check(*driver_, driver_->synchronize(stream), "a copy to a GPU");
}

void GpuDevice::download(void* to, const void* from, std::size_t bytes) const {
  cuda::Stream stream = nullptr;
  cuda::check(*driver_, driver_->create_stream(&stream, cuda::kStreamNonBlocking, 0),
              "a stream of a GPU");
  cuda::Result result = driver_->copy(cuda::address_of(to), cuda::address_of(from), bytes, stream);
  if (result == cuda::kSuccess) result = driver_->synchronize(stream);
  driver_->destroy_stream(stream);
  cuda::check(*driver_, result, "a copy from a GPU");
}

void* GpuDevice::mapped(void* host) const {
  cuda::Address address = 0;
  cuda::check(*driver_, driver_->address_of_host(&address, host, 0),
              "the address of the host's memory on a GPU");
  return reinterpret_cast<void*>(address);
}

void GpuDevice::check_own(const void* memory, cuda::Stream stream) const {
  int device = -1;
  unsigned managed = 0;  // Memory that the driver moves by itself belongs to no GPU.
  if (memory != nullptr)
    driver_->pointer_attribute(&managed, cuda::kPointerManaged, cuda::address_of(memory));
  if (memory != nullptr && managed == 0 &&
      driver_->pointer_attribute(&device, cuda::kPointerDevice, cuda::address_of(memory)) ==
          cuda::kSuccess &&
      device != ordinal_)
    throw Error(ErrorKind::usage,
                fmt::format("a buffer is in the memory of GPU {}, and this rank's GPU is {} "
                            "(TUTTI_DEVICE)",
                            device, ordinal_));
  if (cuda::is_default_stream(stream)) return;
  cuda::Context context = nullptr;
  cuda::check(*driver_, driver_->stream_context(stream, &context), "CallOptions::stream");
  if (context != context_)
    throw Error(ErrorKind::usage,
                fmt::format("CallOptions::stream is of another GPU, or of another context than "
                            "the primary one of this rank's GPU {} (TUTTI_DEVICE)",
                            ordinal_));
}

GpuDevice::Current::Current(const GpuDevice& gpu)
    : driver_(gpu.driver()), outside_capture_(driver_) {
  cuda::check(driver_, driver_.push_context(gpu.context()), "the context of a GPU");
}

GpuDevice::Current::~Current() {
  cuda::Context popped = nullptr;
  driver_.pop_context(&popped);
}

}  // namespace tutti
