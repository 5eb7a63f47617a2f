// GPUs as a program uses them that calls the CUDA driver by itself.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tutti::perf {

/// Knows the GPUs that the CUDA driver shows to this process. It is thread-safe.
class Gpus {
 public:
  /// Loads the driver. Throws `unavailable` if there is none, or if it finds no GPU.
  static std::shared_ptr<const Gpus> open();
  ~Gpus();

  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] std::string name(int gpu) const;
  /// Returns the place on the PCI bus as nccl-tests writes it, for example "0000:17:00".
  [[nodiscard]] std::string bus(int gpu) const;

 private:
  friend class GpuOfRank;
  struct Driver;
  Gpus();

  std::unique_ptr<const Driver> driver_;
  int count_ = 0;
};

/// Says where the ranks of this process find their GPUs.
struct GpuPlan {
  std::string device = "rank";  ///< --device: a GPU for each rank, or the number of one for all.
  int first = 0;                ///< Number of the first rank of this process on its machine.
  int own = 1;                  ///< Ranks of this process.
  int local = 1;                ///< Ranks of all processes on this machine.
};

/// Returns the GPU of rank `index` of this process. Throws `unavailable` if the machine has too few
/// GPUs, or has none of that number.
[[nodiscard]] int gpu_of(const GpuPlan& plan, int index, int gpus);

/// Is a GPU as one rank uses it: its memory, and a stream for the rank's calls. It outlives the
/// memory that it allocates. One thread at a time uses it.
class GpuOfRank {
 public:
  /// While an object of this class exists, the GPU's context is the current one of this thread.
  class Current {
   public:
    explicit Current(const GpuOfRank& gpu);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

    const Gpus::Driver* operator->() const { return &driver_; }

   private:
    const Gpus::Driver& driver_;
  };

  /// `null_stream` says whether calls are on the default stream, not on one of this object's own.
  GpuOfRank(std::shared_ptr<const Gpus> gpus, int number, bool null_stream);
  ~GpuOfRank();
  GpuOfRank(const GpuOfRank&) = delete;
  GpuOfRank& operator=(const GpuOfRank&) = delete;

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] std::string name() const { return gpus_->name(number_); }
  [[nodiscard]] std::string bus() const { return gpus_->bus(number_); }
  [[nodiscard]] void* stream() const noexcept { return stream_; }

  /// Throws `unavailable` if the GPU has not so much memory.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) const;
  /// Adds a copy between two places in the GPU's memory to the stream.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const;
  /// Waits for the stream.
  void synchronize() const;

  // The functions below return when the stream has done what they ask for.
  void fill(std::byte* to, unsigned char value, std::size_t bytes) const;
  void upload(std::byte* to, const std::byte* from, std::size_t bytes) const;
  void download(std::byte* to, const std::byte* from, std::size_t bytes) const;

 private:
  void free(std::byte* memory) const noexcept;
  void copy_any(void* to, const void* from, std::size_t bytes) const;
  void check(int result, const char* what) const;

  const std::shared_ptr<const Gpus> gpus_;
  const int number_;
  void* context_ = nullptr;
  void* stream_ = nullptr;
};

}  // namespace tutti::perf
