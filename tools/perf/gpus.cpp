#include "perf/gpus.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>

#include <tutti/error.hpp>

namespace tutti::perf {
namespace {

using Result = int;
using Address = std::uint64_t;

// Values of the driver's interface.
constexpr Result kSuccess = 0, kNoDevice = 100;
constexpr int kBusNumber = 33, kDeviceNumber = 34, kDomain = 50;  // CU_DEVICE_ATTRIBUTE_PCI_…
constexpr unsigned kNonBlocking = 1;                              // CU_STREAM_NON_BLOCKING

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

}  // namespace

/// Holds the functions of the driver that are called here, by the names that a program links.
struct Gpus::Driver {
  Result (*initialize)(unsigned flags);
  Result (*count)(int*);
  Result (*name)(char* text, int bytes, int device);
  Result (*attribute)(int* value, int attribute, int device);
  Result (*retain)(void** context, int device);
  Result (*release)(int device);
  Result (*push)(void* context);
  Result (*pop)(void** context);
  Result (*allocate)(Address*, std::size_t bytes);
  Result (*free)(Address);
  Result (*copy)(Address to, Address from, std::size_t bytes, void* stream);
  Result (*fill)(Address to, unsigned char value, std::size_t bytes, void* stream);
  Result (*create_stream)(void** stream, unsigned flags);
  Result (*destroy_stream)(void* stream);
  Result (*synchronize)(void* stream);
  Result (*error_text)(Result, const char** text);

  // The library stays loaded, since the communicators use it, too.
  explicit Driver(void* library) {
    find(library, initialize, "cuInit");
    find(library, count, "cuDeviceGetCount");
    find(library, name, "cuDeviceGetName");
    find(library, attribute, "cuDeviceGetAttribute");
    find(library, retain, "cuDevicePrimaryCtxRetain");
    find(library, release, "cuDevicePrimaryCtxRelease_v2");
    find(library, push, "cuCtxPushCurrent_v2");
    find(library, pop, "cuCtxPopCurrent_v2");
    find(library, allocate, "cuMemAlloc_v2");
    find(library, free, "cuMemFree_v2");
    find(library, copy, "cuMemcpyAsync");
    find(library, fill, "cuMemsetD8Async");
    find(library, create_stream, "cuStreamCreate");
    find(library, destroy_stream, "cuStreamDestroy_v2");
    find(library, synchronize, "cuStreamSynchronize");
    find(library, error_text, "cuGetErrorString");
  }

  void check(Result result, const std::string& what) const {
    if (result == kSuccess) return;
    const char* text = nullptr;
    if (error_text(result, &text) != kSuccess || text == nullptr) text = "unknown error";
    throw Error(ErrorKind::unavailable,
                fmt::format("{}: the CUDA driver says: {} (error {})", what, text, result));
  }

 private:
  template <typename Function>
  static void find(void* library, Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr)
      throw Error(ErrorKind::unavailable,
                  fmt::format("the CUDA driver lacks {}: install a newer driver", name));
  }
};

Gpus::Gpus() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("buffers on GPUs (--device, -g) need the CUDA driver: {}; install it, "
                            "or measure ranks on CPUs with --ranks or -t alone",
                            dlerror()));
  driver_ = std::make_unique<const Driver>(library);
  const Result started = driver_->initialize(0);
  if (started != kNoDevice) driver_->check(started, "the start of the CUDA driver");
  if (started == kSuccess) driver_->check(driver_->count(&count_), "the number of GPUs");
  if (count_ <= 0)
    throw Error(ErrorKind::unavailable,
                "buffers on GPUs (--device, -g): the CUDA driver finds no GPU "
                "(CUDA_VISIBLE_DEVICES may hide them)");
}
Gpus::~Gpus() = default;

std::shared_ptr<const Gpus> Gpus::open() { return std::shared_ptr<const Gpus>(new Gpus); }

std::string Gpus::name(int gpu) const {
  char text[128] = {};
  driver_->check(driver_->name(text, sizeof text, gpu), "a GPU's name");
  return text;
}

std::string Gpus::bus(int gpu) const {
  int numbers[3] = {};
  const int attributes[] = {kDomain, kBusNumber, kDeviceNumber};
  for (int i = 0; i < 3; ++i)
    driver_->check(driver_->attribute(&numbers[i], attributes[i], gpu), "a GPU's place on its bus");
  return fmt::format("{:04x}:{:02x}:{:02x}", numbers[0], numbers[1], numbers[2]);
}

int gpu_of(const GpuPlan& plan, int index, int gpus) {
  assert(0 <= index && index < plan.own && gpus > 0);
  if (plan.device == "rank") {
    if (plan.first + plan.own > gpus || plan.local > gpus)
      throw Error(ErrorKind::unavailable,
                  fmt::format("{} ranks of this machine need a GPU each, and the CUDA driver finds "
                              "{}: start fewer ranks, or have them share one with --device=0",
                              std::max(plan.local, plan.first + plan.own), gpus));
    return plan.first + index;
  }
  const int number = std::stoi(plan.device);
  if (number >= gpus)
    throw Error(ErrorKind::unavailable,
                fmt::format("--device={}: the last GPU that the CUDA driver finds is {}", number,
                            gpus - 1));
  return number;
}

GpuOfRank::Current::Current(const GpuOfRank& gpu) : driver_(*gpu.gpus_->driver_) {
  driver_.check(driver_.push(gpu.context_), fmt::format("the context of GPU {}", gpu.number_));
}

GpuOfRank::Current::~Current() {
  void* popped = nullptr;
  driver_.pop(&popped);
}

GpuOfRank::GpuOfRank(std::shared_ptr<const Gpus> gpus, int number, bool null_stream)
    : gpus_(std::move(gpus)), number_(number) {
  check(gpus_->driver_->retain(&context_, number_), "its context");
  if (null_stream) return;
  const Current current(*this);
  check(current->create_stream(&stream_, kNonBlocking), "a stream");
}

GpuOfRank::~GpuOfRank() {
  if (stream_ != nullptr) {
    try {
      const Current current(*this);
      current->destroy_stream(stream_);
    } catch (const Error&) {  // The context is gone, and the stream with it.
    }
  }
  gpus_->driver_->release(number_);
}

void GpuOfRank::check(int result, const char* what) const {
  if (result != kSuccess) gpus_->driver_->check(result, fmt::format("GPU {}: {}", number_, what));
}

std::shared_ptr<std::byte> GpuOfRank::allocate(std::size_t bytes) const {
  const Current current(*this);
  Address address = 0;
  check(current->allocate(&address, bytes + 1),  // not 0, which the driver refuses
        fmt::format("{} bytes of memory for a buffer (choose a smaller -e)", bytes).c_str());
  return {reinterpret_cast<std::byte*>(address), [this](std::byte* memory) { free(memory); }};
}

void GpuOfRank::free(std::byte* memory) const noexcept {
  try {
    const Current current(*this);
    current->free(address_of(memory));
  } catch (const Error&) {  // The context is gone, and its memory with it.
  }
}

void GpuOfRank::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  copy_any(to, from, bytes);
}

void GpuOfRank::copy_any(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  const Current current(*this);
  check(current->copy(address_of(to), address_of(from), bytes, stream_), "a copy");
}

void GpuOfRank::synchronize() const {
  const Current current(*this);
  check(current->synchronize(stream_), "the end of a stream's work");
}

void GpuOfRank::fill(std::byte* to, unsigned char value, std::size_t bytes) const {
  if (bytes == 0) return;
  const Current current(*this);
  check(current->fill(address_of(to), value, bytes, stream_), "filling memory");
  check(current->synchronize(stream_), "filling memory");
}

void GpuOfRank::upload(std::byte* to, const std::byte* from, std::size_t bytes) const {
  copy_any(to, from, bytes);
  synchronize();
}

void GpuOfRank::download(std::byte* to, const std::byte* from, std::size_t bytes) const {
  copy_any(to, from, bytes);
  synchronize();
}

}  // namespace tutti::perf
