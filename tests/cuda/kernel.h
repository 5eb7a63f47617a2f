// What the stand-in for a GPU and the kernels that it executes say to each other. The kernels are
// C++ that tests/cuda/ptx has made of PTX; they lie in a shared library of their own, which needs
// nothing of the stand-in: whatever a kernel asks for goes through its Thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::stand_in {

struct Size3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

inline constexpr unsigned kWarp = 32;

/// A CUDA thread, as its kernel sees it. It is a fiber of the host thread that runs its block: no
/// two threads of a block ever run at once, and one runs until it waits, looks again and again at
/// memory that does not change, or ends.
class Thread {
 public:
  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  /// bar.sync: waits until `threads` threads of the block are at the barrier; 0 stands for all.
  /// Returns how many of them gave `vote` true.
  virtual unsigned synchronize(unsigned barrier, unsigned threads, bool vote) = 0;
  /// bar.arrive.
  virtual void arrive(unsigned barrier, unsigned threads) = 0;
  /// Waits until all `lanes` of the warp have given a value, and returns the values by lane. They
  /// stay until this thread meets the same lanes again.
  virtual const std::uint64_t* meet(std::uint32_t lanes, std::uint64_t value) = 0;
  /// Lets other threads run, since this one waits for something that they or others do.
  virtual void pause() = 0;
  /// Ends the process with a message.
  [[noreturn]] virtual void fail(const char* message) = 0;

  /// Kernels call this with what an atomic load has found, or with an atomic operation that has
  /// changed nothing. A thread that finds the same again and again waits for it to change.
  void saw(std::uint64_t address, std::uint64_t value) {
    Seen& seen = seen_[(address >> 2) % 4];
    if (seen.address == address && seen.value == value) {
      if (++unchanged_ >= kPatience) pause();
    } else {
      seen = {address, value};
      disturb();
    }
  }
  /// A place at which another thread may run first: it does so at times, if there is a jitter.
  void disturb() {
    if (jitter_ != 0 && draw() % 8 == 0) pause();
  }

  Size3 index, block, block_size, grid_size;
  std::uint32_t number = 0;  ///< Within the block, from 0 on.
  std::byte* shared = nullptr;
  std::uint32_t static_shared = 0, dynamic_shared = 0;

 protected:
  ~Thread() = default;
  std::uint64_t draw() {  // xorshift
    jitter_ ^= jitter_ << 13;
    jitter_ ^= jitter_ >> 7;
    return jitter_ ^= jitter_ << 17;
  }
  static constexpr unsigned kPatience = 16;
  struct Seen {
    std::uint64_t address = 0, value = 0;
  };
  Seen seen_[4];
  unsigned unchanged_ = 0;
  std::uint64_t jitter_ = 0;  ///< The state of a generator of random numbers, or 0 for no jitter.
};

struct Parameter {
  std::uint32_t offset, bytes;
};

struct Kernel {
  const char* name;
  void (*run)(Thread&, const std::byte* parameters);
  const Parameter* parameters;
  std::uint32_t parameter_count;
  std::uint32_t shared_bytes;  ///< The static shared memory. Dynamic memory lies behind it.
  std::uint32_t most_threads;  ///< Of a block (.maxntid).
};

struct Kernels {
  const Kernel* kernels;
  std::size_t count;
  int target;  ///< 80 for compute_80.
};
/// The name of the function `const Kernels* ()` that a library of kernels exports.
inline constexpr char kKernelsFunction[] = "stand_in_kernels";

}  // namespace tutti::stand_in
