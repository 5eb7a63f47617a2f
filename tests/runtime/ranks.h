// Runs the engines of all ranks of a communicator in one thread, over any transport, in an order
// drawn from a seed.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "runtime/engine/execution.h"
#include "transport/channel.h"
#include "transport/local/local.h"

namespace tutti::test {

enum class TransportKind {
  local,
  /// Like local, with ranks that register some of their buffers for zero-copy, at random.
  zero_copy,
  /// Like local, with ranks whose messages lie in ordinary memory, at random, from where the kernel
  /// copies them.
  kernel,
  shm,
  tcp,
  tls,  ///< Encrypted tcp.
  ucx,  ///< UCX over loopback.
  /// A byte stream, whose ranks use zero-copy for some of their buffers without registering them.
  stream,
};
std::string_view to_string(TransportKind kind);

/// Connected transports, indexed by rank. Messages are small, so that small buffers have many
/// pieces.
class Ranks {
 public:
  static constexpr std::size_t kMessageBytes = 1024;

  Ranks(TransportKind kind, int size, std::uint64_t seed,
        std::size_t message_bytes = kMessageBytes);
  Ranks(Ranks&&) = default;
  Ranks& operator=(Ranks&&) = default;
  ~Ranks();

  int size() const { return static_cast<int>(transports_.size()); }
  Transport& transport(int rank) { return *transports_[static_cast<std::size_t>(rank)]; }
  Random& random() { return random_; }
  bool zero_copy() const { return zero_copy_; }
  /// Registers the buffer for zero-copy or does not, at random.
  Memory maybe_register(int rank, std::vector<std::byte>& buffer);

  /// Runs `operations` operations on each rank, each rank at its own pace, in random order:
  /// `start(rank, k, execution)` starts the rank's k-th. Returns false if nothing moves any more.
  bool drive(std::size_t operations,
             const std::function<void(int, std::size_t, Execution&)>& start);

 private:
  SteadyClock clock_;
  SeededRandom random_;
  Config config_;
  SystemRandom identities_;  // Transports draw from it while they connect, each in its thread.
  std::vector<std::unique_ptr<Transport>> transports_;
  std::shared_ptr<local::Hub> hub_;  // Belongs to ranks that register segments.
  bool zero_copy_ = false;
  bool over_network_;
};

/// One collective to run and check. Inputs are small whole numbers, so that every order of
/// reduction gives the same bits.
struct Trial {
  Collective what;
  std::uint32_t algorithm;
  DataType type;
  Op op = Op::sum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  std::vector<std::size_t> lengths = {};  ///< Indexed by block; empty unless the call is variable.
  std::size_t gap = 0;                    ///< The elements between the blocks of a variable call.
  bool accumulates_f32 = false;           ///< Whether accumulate is f32.
};
std::string describe(const Trial& trial, int ranks);

/// Runs `trials` one after the other without a barrier between them, as operations `number` and up
/// of all ranks; returns the first difference from the expected result, or an empty string. Also
/// checks that inputs and the bytes around the outputs are untouched.
std::string run(Ranks& ranks, std::span<const Trial> trials, std::uint32_t number);

}  // namespace tutti::test
