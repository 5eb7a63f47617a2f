// Sources of random numbers, which are passed to everything that needs them: the library asks the
// kernel, tests give a seed.
#pragma once

#include <cstdint>

#include "common/wire.h"

namespace tutti {

class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t next() = 0;  ///< Returns 64 random bits.
};

/// Numbers from getrandom(2). Thread-safe.
class SystemRandom final : public Random {
 public:
  std::uint64_t next() override;
};

/// Gives the same sequence for the same seed (splitmix64). Not thread-safe.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() override { return mix(state_ += 0x9e3779b97f4a7c15u); }

 private:
  std::uint64_t state_;
};

}  // namespace tutti
