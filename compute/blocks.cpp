// Reductions whose operands must be converted or multiplied before they are reduced, or converted
// afterwards. They are processed in blocks that stay in the first-level cache.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "common/wire.h"
#include "compute/kernels.h"

namespace tutti {
namespace {

constexpr std::size_t kBlockBytes = 4096;
static_assert(kBlockBytes >= kMaxUserElementBytes && kBlockBytes % 64 == 0);
struct alignas(64) Block {
  std::byte bytes[kBlockBytes];
};

constexpr CombineExtras kNoExtras;

bool has_bit(std::uint64_t mask, int k) { return k < 64 && (mask >> k & 1) != 0; }
std::uint64_t all_of(int operands) {
  return operands >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << operands) - 1;
}

bool is_plain(const CombineExtras* extras) {
  return extras == nullptr ||
         (extras->premultiplied_inputs | extras->f32_inputs | extras->f32_outputs) == 0;
}

// Reduces one block after the other. An element has `held_bytes_` in buffers of type T and
// `folded_bytes_` while it is being reduced: in the blocks on the stack and in f32 operands.
class Blocks {
 public:
  Blocks(const CombineArgs& args, DataType type, Op op)
      : args_(args),
        extras_(args.extras != nullptr ? *args.extras : kNoExtras),
        conversion_(conversion_of(type)),
        held_bytes_(size_of(type)),
        folded_bytes_(size_of(accumulation_type(type))),
        fold_(direct_kernel(accumulation_type(type), op == Op::premul_sum ? Op::sum : op)),
        scale_(scale_function(accumulation_type(type))) {
    assert(fold_ != nullptr && args.inputs >= 1 && args.outputs >= 1);
    assert((extras_.f32_inputs | extras_.f32_outputs) == 0 || converts());
    assert((extras_.f32_inputs | extras_.premultiplied_inputs) == 0 || args.inputs <= 64);
    assert(extras_.f32_outputs == 0 || args.outputs <= 64);
    if (extras_.premultiplied_inputs != 0) set_scalar();
    rounds_products_ = converts() && (extras_.f32_inputs | extras_.f32_outputs) == 0;
  }

  // A single input that is neither converted, multiplied nor divided is copied bit for bit.
  bool is_copy() const {
    const std::uint64_t wide = extras_.f32_outputs & all_of(args_.outputs);
    return args_.inputs == 1 && args_.divide_by == 1 && !has_bit(extras_.premultiplied_inputs, 0) &&
           wide == (has_bit(extras_.f32_inputs, 0) ? all_of(args_.outputs) : 0);
  }
  std::size_t copied_bytes() const {
    return has_bit(extras_.f32_inputs, 0) ? folded_bytes_ : held_bytes_;
  }

  void run() {
    const std::size_t most = kBlockBytes / folded_bytes_;
    for (; begin_ < args_.count; begin_ += count_) {
      count_ = std::min(most, args_.count - begin_);
      const void* result = operand(0, folded_);
      if (args_.inputs == 1) result = alone(result);
      for (int j = 1; j < args_.inputs; ++j) {
        const void* both[] = {result, operand(j, operand_)};
        fold(both, 2, j + 1 == args_.inputs ? args_.divide_by : 1);
        result = folded_.bytes;
      }
      for (int k = 0; k < args_.outputs; ++k) store(result, k);
    }
  }

 private:
  bool converts() const { return conversion_.widen != nullptr; }

  void set_scalar() {
    assert(extras_.premultiply != nullptr && scale_ != nullptr);
    if (converts())
      conversion_.widen(extras_.premultiply, reinterpret_cast<float*>(scalar_.bytes), 1);
    else
      std::memcpy(scalar_.bytes, extras_.premultiply, folded_bytes_);
  }

  // Returns the address of input j, ready to be folded: its own memory, or `block` if it had to be
  // converted or multiplied.
  const void* operand(int j, Block& block) const {
    const bool widens = converts() && !has_bit(extras_.f32_inputs, j);
    const void* from = static_cast<const std::byte*>(args_.in[j]) +
                       begin_ * (widens ? held_bytes_ : folded_bytes_);
    if (widens) {
      conversion_.widen(from, reinterpret_cast<float*>(block.bytes), count_);
      from = block.bytes;
    }
    if (!has_bit(extras_.premultiplied_inputs, j)) return from;
    scale_(from, block.bytes, count_, scalar_.bytes);
    if (rounds_products_) round(reinterpret_cast<float*>(block.bytes));
    return block.bytes;
  }

  void round(float* values) const {
    alignas(64) std::byte narrow[kBlockBytes / sizeof(float) * 2];
    conversion_.narrow(values, narrow, count_);
    conversion_.widen(narrow, values, count_);
  }

  // Handles a call with a single input. No reduction has replaced its NaN by the canonical NaN yet,
  // so this function does.
  const void* alone(const void* input) {
    if (args_.divide_by != 1) {
      fold(&input, 1, args_.divide_by);
    } else if (converts()) {
      constexpr float kOne = 1;
      scale_(input, folded_.bytes, count_, &kOne);
    } else {
      return input;
    }
    return folded_.bytes;
  }

  void fold(const void* const* in, int inputs, std::uint32_t divide_by) {
    void* const out = folded_.bytes;
    fold_({.in = in,
           .inputs = inputs,
           .out = &out,
           .outputs = 1,
           .count = count_,
           .divide_by = divide_by});
  }

  void store(const void* result, int k) const {
    const bool narrows = converts() && !has_bit(extras_.f32_outputs, k);
    std::byte* const to =
        static_cast<std::byte*>(args_.out[k]) + begin_ * (narrows ? held_bytes_ : folded_bytes_);
    if (narrows)
      conversion_.narrow(static_cast<const float*>(result), to, count_);
    else
      std::memcpy(to, result, count_ * folded_bytes_);
  }

  const CombineArgs& args_;
  const CombineExtras& extras_;
  const Conversion conversion_;
  const std::size_t held_bytes_;
  const std::size_t folded_bytes_;
  const CombineFunction fold_;
  const ScaleFunction scale_;
  bool rounds_products_ = false;
  std::size_t begin_ = 0;
  std::size_t count_ = 0;
  struct alignas(64) {
    std::byte bytes[64];
  } scalar_;
  Block folded_;
  Block operand_;
};

}  // namespace

void copy_elements(const CombineArgs& args, std::size_t element_bytes) {
  assert(element_bytes > 0 && args.inputs == 1);
  CombineArgs bytes = args;
  bytes.count *= element_bytes;
  combine_copy(bytes);
}

void combine_in_blocks(const CombineArgs& args, DataType type, Op op) {
  // Most steps of an average only add; so do most steps of a premultiplied sum.
  if (is_plain(args.extras) && args.divide_by == 1 && (op == Op::avg || op == Op::premul_sum))
    if (const CombineFunction sum = direct_kernel(type, Op::sum)) return sum(args);
  Blocks blocks(args, type, op);
  if (blocks.is_copy()) return copy_elements(args, blocks.copied_bytes());
  blocks.run();
}

void combine_user(const CombineArgs& args) {
  assert(args.inputs >= 1 && args.outputs >= 1 && args.divide_by == 1);
  assert(args.extras != nullptr && args.extras->user != nullptr);
  const UserReduction& user = *args.extras->user;
  const std::size_t size = user.element_bytes;
  assert(size >= 1 && size <= kMaxUserElementBytes);
  if (args.inputs == 1) return copy_elements(args, size);
  Block blocks[2];
  const std::size_t most = kBlockBytes / size;
  for (std::size_t begin = 0, count = 0; begin < args.count; begin += count) {
    count = std::min(most, args.count - begin);
    const auto input = [&](int j) {
      return static_cast<const std::byte*>(args.in[j]) + begin * size;
    };
    const std::byte* left = input(0);
    for (int j = 1; j < args.inputs; ++j) {
      std::byte* const right = blocks[j % 2].bytes;
      std::memcpy(right, input(j), count * size);
      user.function(left, right, count, user.context);
      left = right;
    }
    for (int k = 0; k < args.outputs; ++k)
      std::memcpy(static_cast<std::byte*>(args.out[k]) + begin * size, left, count * size);
  }
}

}  // namespace tutti
