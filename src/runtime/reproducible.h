// Reproducible sums (accumulate = reproducible): one call made of collectives over integers, a
// piece after the other, whose results depend on no order; see compute/fixed_point.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "compute/fixed_point.h"
#include "runtime/call.h"
#include "runtime/program_cache.h"

namespace tutti {

/// Whether a call that asks for accumulate = reproducible needs it: sums of floats do, and all that
/// is not a reduction of floats gives the same bits anyway. Throws `usage` for a product of floats,
/// which has no such form.
bool sums_reproducibly(const CallKind& kind);

/// What follows from a call's kind; of a variable call, from its lengths, too.
struct ReproduciblePlan {
  CallKind kind;
  CallSignature call;  ///< Of the whole, as peers are told.
  const FixedPoint* format;
  int ranks;
  struct Block {  ///< Of the input, in elements.
    std::size_t first, count;
  };
  std::vector<Block> blocks;  ///< One, or one for each rank.
  std::size_t piece;          ///< Elements of each block that are summed at a time.
  struct Keys {
    CallKey exponents, digits;
  };
  Keys full, last;  ///< Of a whole piece, and of the last one, of the longest block.
};

/// `call`: its signature. `key_of`: the key of a collective of that kind. Throws `unavailable` for
/// more ranks than can be summed over.
std::shared_ptr<const ReproduciblePlan> plan_reproducible(
    const CallKind& kind, const CallSignature& call, int ranks,
    const std::function<CallKey(const CallKind&)>& key_of);
/// The same for these lengths, of a variable call.
std::shared_ptr<const ReproduciblePlan> with_blocks(const ReproduciblePlan& plan,
                                                    const BlockTable& table);

/// One call under way. Own thread only (the engine's owner).
class ReproducibleSum {
 public:
  /// A collective to run, all on memory of this object.
  struct Part {
    const CallKey& key;
    const std::byte* input;
    std::byte* output;
    const BlockTable* blocks;  ///< For a variable program.
  };

  /// What is given stays valid until next() has returned null. `premultiplier`: of a premul_sum.
  void start(std::shared_ptr<const ReproduciblePlan> plan, int rank, const void* input,
             void* output, const void* premultiplier);
  /// Takes the result of the part before, and prepares the next one; none: the call is done.
  std::optional<Part> next();
  bool under_way() const noexcept { return plan_ != nullptr; }
  const CallSignature& call() const noexcept { return plan_->call; }  ///< While it is.
  /// Held from call to call. Any thread.
  std::size_t memory_bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  enum class Stage { exponents, digits, result };

  std::size_t pieces() const noexcept;
  std::size_t stride() const noexcept;  // from one block to the next in this piece, in elements
  std::size_t here(std::size_t block) const noexcept;  // elements of it in this piece
  const BlockTable& digit_blocks(const CallSignature& like);
  template <typename Body>
  void for_each_block(Body&& body);
  void lay_out();
  void take_result();

  std::shared_ptr<const ReproduciblePlan> plan_;
  int rank_ = 0;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  const void* premultiplier_ = nullptr;
  std::size_t piece_ = 0;
  Stage stage_ = Stage::exponents;

  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;  // kept from call to call
  std::atomic<std::size_t> bytes_{0};
  std::byte* exponents_ = nullptr;
  std::byte* digits_ = nullptr;
  std::byte* results_ = nullptr;  // of a block; the digits themselves where they are the results
  std::byte* scaled_ = nullptr;   // a block's summands, multiplied
  BlockTable table_;              // of the digits of a variable call's piece
};

}  // namespace tutti
