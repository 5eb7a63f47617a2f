// A device of the stand-in: at most so many blocks at once, each on a host thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "tests/cuda/block.h"

namespace tutti::stand_in {

/// What the environment says, read once.
struct Settings {
  Settings();
  int devices;              ///< FAKE_CUDA_DEVICES: 1 if it is not set.
  int blocks;               ///< FAKE_CUDA_SMS: the blocks at once on a device, 16.
  std::string blocks_file;  ///< FAKE_CUDA_SMS_FILE: processes that name the same file share them.
  std::uint64_t jitter;     ///< FAKE_CUDA_JITTER: a seed, or 0 for no jitter.
  int timeout_ms;           ///< FAKE_CUDA_TIMEOUT_MS: after this time a kernel ends the process.
  std::string kernels;      ///< FAKE_CUDA_KERNELS: libraries of kernels, with colons between.
  bool free_waits;          ///< FAKE_CUDA_FREE_WAITS: cuMemFree waits for all streams.
  std::string peers;        ///< FAKE_CUDA_PEERS: how GPUs reach each other's memory: none, lost,
                            ///< damaged; otherwise they do.
  int full_device;          ///< FAKE_CUDA_FULL_DEVICE: this one has no memory left; -1 is none.
};
const Settings& settings();

/// A pause of up to 200 us or none, if there is a jitter. `seed` names the place.
void jitter(std::uint64_t seed);

/// It may be used by any thread.
class Device {
 public:
  explicit Device(int ordinal) : ordinal_(ordinal) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const { return ordinal_; }
  /// Executes a grid and returns when all its blocks have ended.
  void run(Launch launch);

 private:
  /// A place in which a block runs. It is free again when the process ends, however it ends.
  int enter();
  void exit(int place);
  int lock_place() const;

  const int ordinal_;
  std::mutex mutex_;
  std::condition_variable left_;
  int resident_ = 0;
};

}  // namespace tutti::stand_in
