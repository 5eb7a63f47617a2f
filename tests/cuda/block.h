// Executes the blocks of a grid, each on one host thread, whose fibers are the block's threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "tests/cuda/fiber.h"
#include "tests/cuda/kernel.h"

namespace tutti::stand_in {

struct Launch {
  const Kernel* kernel;
  Size3 grid, block;
  std::uint32_t dynamic_shared;
  std::vector<std::byte> parameters;
  std::uint64_t jitter;  ///< A seed, or 0.
};

class Block;

class BlockThread final : public Thread {
 public:
  explicit BlockThread(Block& runner) : runner_(runner) {}
  void begin(const Launch& launch, Size3 block, std::uint32_t number_in_block);

  unsigned synchronize(unsigned barrier, unsigned threads, bool vote) override;
  void arrive(unsigned barrier, unsigned threads) override;
  const std::uint64_t* meet(std::uint32_t lanes, std::uint64_t value) override;
  void pause() override;
  [[noreturn]] void fail(const char* message) override;

 private:
  friend class Block;
  enum class State { paused, waiting, ended };
  static void run(void* self);
  void wait();

  Block& runner_;
  Fiber fiber_;
  const Launch* launch_ = nullptr;
  State state_ = State::ended;
};

/// Runs blocks one after another, and keeps the fibers for the next. One host thread at a time uses
/// it.
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void run(const Launch& launch, Size3 index);

 private:
  friend class BlockThread;
  /// Two counts for each of the two generations that can be in use at once: a thread that has not
  /// yet seen the end of one keeps the others from ending the next.
  struct Barrier {
    unsigned arrived = 0, votes = 0, generation = 0;
    std::array<unsigned, 2> result{};
    std::array<char, 2> order{};  ///< Their addresses stand for the order of things.
    std::vector<BlockThread*> waiting;
  };
  /// Lanes of a warp that meet.
  struct Meeting {
    std::uint32_t lanes = 0, arrived = 0;
    unsigned generation = 0;
    std::array<std::array<std::uint64_t, kWarp>, 2> values{};
    std::array<char, 2> order{};
    std::vector<BlockThread*> waiting;
  };
  struct FreeShared {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  static constexpr std::align_val_t kAlignment{128};

  void prepare(const Launch& launch, Size3 index);
  bool run_round();
  void wake(std::vector<BlockThread*>& waiting);
  void complete(Barrier& barrier, unsigned threads);
  Meeting& meeting(std::uint32_t warp, std::uint32_t lanes);
  [[noreturn]] void report_deadlock() const;

  std::vector<std::unique_ptr<BlockThread>> threads_;
  std::vector<BlockThread*> ready_, round_;
  std::array<Barrier, 16> barriers_;
  std::vector<std::vector<std::unique_ptr<Meeting>>> meetings_;  ///< By warp.
  std::unique_ptr<std::byte, FreeShared> shared_;
  std::size_t shared_bytes_ = 0;
  std::uint32_t count_ = 0, live_ = 0;
  Size3 index_;
  const Launch* launch_ = nullptr;
  std::minstd_rand random_;
  char begin_ = 0, end_ = 0;  ///< Their addresses stand for the order of things.
};

}  // namespace tutti::stand_in
