// Measures what a machine's GPUs can do without tutti: copies by the driver, and all-reduces by
// NCCL where it is installed. Prints one JSON object; tests/gpu/run puts it beside tutti's figures.
//
// usage: gpu_speeds <largest bytes> <seconds of each measurement>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/kernels/gpu_buffers.h"

namespace tutti::test {
namespace {

using Json = nlohmann::ordered_json;

/// A measurement runs for about `seconds`, and calls at least once.
struct Effort {
  std::size_t most_bytes = 0;
  double seconds = 0;
};

/// Returns the time of one call in microseconds. `call` starts work on streams, and `wait` waits
/// for all of it.
double microseconds(const Effort& effort, const std::function<void()>& call,
                    const std::function<void()>& wait) {
  using Clock = std::chrono::steady_clock;
  call();
  wait();
  for (std::uint64_t calls = 1;; calls *= 4) {
    const auto began = Clock::now();
    for (std::uint64_t i = 0; i < calls; ++i) call();
    wait();
    const std::chrono::duration<double> took = Clock::now() - began;
    if (took.count() >= effort.seconds / 4 || calls >= 100'000)
      return took.count() * 1e6 / static_cast<double>(calls);
  }
}

Json describe_gpus(int count) {
  Json gpus = Json::array();
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    char name[256] = {};
    std::size_t bytes = 0;
    int major = 0, minor = 0;
    constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
    cu("cuDeviceGetName", &name[0], static_cast<int>(sizeof name), ordinal);
    cu("cuDeviceTotalMem_v2", &bytes, ordinal);
    cu("cuDeviceGetAttribute", &major, kMajor, ordinal);
    cu("cuDeviceGetAttribute", &minor, kMinor, ordinal);
    gpus.push_back({{"name", name}, {"bytes", bytes}, {"sm", fmt::format("{}.{}", major, minor)}});
  }
  return gpus;
}

/// Returns the rate of a copy in GB/s.
Json measure_copy(const Effort& effort, const std::string& path, void* to, const void* from) {
  const GpuStream stream;
  const double time = microseconds(
      effort, [&] { stream.copy(to, from, effort.most_bytes); }, [&] { stream.synchronize(); });
  return {{"path", path},
          {"bytes", effort.most_bytes},
          {"gb_s", static_cast<double>(effort.most_bytes) / time / 1e3}};
}

Json copies(const Effort& effort, int gpus) {
  Json rows = Json::array();
  const GpuContext context(0);
  const GpuBuffer<std::byte> a(effort.most_bytes), b(effort.most_bytes);
  const PinnedBuffer<std::byte> host(effort.most_bytes);
  rows.push_back(measure_copy(effort, "within GPU 0", b.data(), a.data()));
  rows.push_back(measure_copy(effort, "host to GPU 0", a.data(), host.view().data()));
  rows.push_back(measure_copy(effort, "GPU 0 to host", host.view().data(), a.data()));
  for (int peer = 1; peer < gpus; ++peer) {
    const GpuContext other(peer);  // Current until the next one is made.
    const GpuBuffer<std::byte> theirs(effort.most_bytes);
    const GpuContext back(0);
    rows.push_back(
        measure_copy(effort, fmt::format("GPU 0 to GPU {}", peer), theirs.data(), a.data()));
  }
  return rows;
}

/// Represents NCCL, which is loaded from where the loader finds it.
class Nccl {
 public:
  Nccl() : library_(dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) why_missing_ = dlerror();
  }
  const std::string& why_missing() const { return why_missing_; }

  template <typename... Args>
  void call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("NCCL has no ") + name);
    if (const int result = function(args...); result != 0)
      throw std::runtime_error(fmt::format("{}: error {}", name, result));
  }

 private:
  void* const library_;
  std::string why_missing_;
};

/// Holds what one GPU takes part with.
struct NcclRank {
  NcclRank(int ordinal, std::size_t bytes) : context(ordinal), from(bytes), to(bytes) {}
  const GpuContext context;
  const GpuBuffer<std::byte> from, to;
  const GpuStream stream;
  void* comm = nullptr;
};

/// Returns the time of an all_reduce of all GPUs for each size, in microseconds.
Json all_reduces_by(const Nccl& nccl, const Effort& effort, int gpus) {
  constexpr int kFloat = 7, kSum = 0;  // ncclFloat32, ncclSum
  std::vector<std::unique_ptr<NcclRank>> ranks;
  std::vector<void*> comms(static_cast<std::size_t>(gpus));
  std::vector<int> ordinals;
  for (int ordinal = 0; ordinal < gpus; ++ordinal) {
    ordinals.push_back(ordinal);
    ranks.push_back(std::make_unique<NcclRank>(ordinal, effort.most_bytes));
  }
  nccl.call("ncclCommInitAll", comms.data(), gpus, static_cast<const int*>(ordinals.data()));
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i]->comm = comms[i];
  Json rows = Json::array();
  for (std::size_t bytes = 8; bytes <= effort.most_bytes; bytes *= 8) {
    const auto all_reduce = [&] {
      nccl.call("ncclGroupStart");
      for (const auto& rank : ranks)
        nccl.call("ncclAllReduce", static_cast<const void*>(rank->from.data()),
                  static_cast<void*>(rank->to.data()), bytes / sizeof(float), kFloat, kSum,
                  rank->comm, rank->stream.handle());
      nccl.call("ncclGroupEnd");
    };
    const auto wait = [&] {
      for (const auto& rank : ranks) rank->stream.synchronize();
    };
    rows.push_back({{"bytes", bytes}, {"us", microseconds(effort, all_reduce, wait)}});
  }
  for (const auto& rank : ranks) nccl.call("ncclCommDestroy", rank->comm);
  return rows;
}

Json measure(const Effort& effort) {
  int driver = 0, gpus = 0;
  cu("cuInit", 0u);
  cu("cuDriverGetVersion", &driver);
  cu("cuDeviceGetCount", &gpus);
  if (gpus == 0) throw std::runtime_error("the driver shows no GPU");
  Json all{{"driver", driver}, {"gpus", describe_gpus(gpus)}, {"copies", copies(effort, gpus)}};
  const Nccl nccl;
  if (nccl.why_missing().empty()) {
    int version = 0;
    nccl.call("ncclGetVersion", &version);
    all["nccl"] = {{"version", version}, {"all_reduce", all_reduces_by(nccl, effort, gpus)}};
  } else {
    all["nccl"] = {{"missing", nccl.why_missing()}};
  }
  return all;
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: gpu_speeds <largest bytes> <seconds>");
  const tutti::test::Effort effort{std::stoul(argv[1]), std::stod(argv[2])};
  std::puts(tutti::test::measure(effort).dump(2).c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_speeds: %s\n", error.what());
  return 1;
}
