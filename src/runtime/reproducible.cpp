#include "runtime/reproducible.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "collectives/semantics.h"
#include "compute/combine.h"
#include "transport/ring.h"

namespace tutti {
namespace {

// Elements of a piece, all blocks together: their digits stay in a second-level cache.
constexpr std::size_t kPiece = 64u << 10;

// Element i of the premultiplied sum, as the type rounds it.
void scale(const CallKind& kind, const void* scalar, const void* from, std::size_t count,
           void* to) {
  CombineExtras extras;
  extras.premultiplied_inputs = 1;
  extras.premultiply = scalar;
  combine_function(kind.type, Op::premul_sum)(
      {.in = &from, .inputs = 1, .out = &to, .outputs = 1, .count = count, .extras = &extras});
}

}  // namespace

bool sums_reproducibly(const CallKind& kind) {
  if (!collectives::reduces(kind.what) || kind.reduction != 0 ||
      fixed_point_of(kind.type) == nullptr)
    return false;
  if (kind.op == Op::prod)
    refuse(kind, fmt::format("a product of {} depends on the order of its factors; give it "
                             "accumulate = step in its options",
                             to_string(kind.type)));
  return kind.op == Op::sum || kind.op == Op::avg || kind.op == Op::premul_sum;
}

std::shared_ptr<const ReproduciblePlan> plan_reproducible(
    const CallKind& kind, const CallSignature& call, int ranks,
    const std::function<CallKey(const CallKind&)>& key_of) {
  if (ranks > FixedPoint::kMostSummands)
    throw Error(ErrorKind::unavailable,
                fmt::format("{}: accumulate = reproducible sums over at most {} ranks, not {}",
                            name_of(kind.what, kind.variable), FixedPoint::kMostSummands, ranks));
  ReproduciblePlan plan{kind, call, fixed_point_of(kind.type), ranks, {}, 0, {}, {}};
  plan.call.reproducible = true;
  const std::size_t blocks =
      collectives::layout_of(kind.what) == Layout::blocks ? static_cast<std::size_t>(ranks) : 1;
  for (std::size_t block = 0; block < blocks; ++block)
    plan.blocks.push_back({block * kind.count, kind.count});
  plan.piece = std::max<std::size_t>(1, kPiece / blocks);
  const auto key = [&](CallKind part) {
    CallKey found = key_of(part);
    found.signature.part_of = fingerprint(plan.call);
    return found;
  };
  const auto keys = [&](std::size_t count) -> ReproduciblePlan::Keys {
    const FixedPoint& format = *plan.format;
    CallKind exponents{Collective::all_reduce, format.exponent, Op::max, 0,
                       blocks * count * static_cast<std::size_t>(format.exponents)};
    CallKind digits{kind.what,
                    format.digit,
                    Op::sum,
                    kind.root,
                    count * static_cast<std::size_t>(format.digits),
                    kind.variable};
    return {key(exponents), key(digits)};
  };
  plan.full = keys(std::min(plan.piece, kind.count));
  const std::size_t rest = kind.count % plan.piece;
  plan.last = rest == 0 ? plan.full : keys(rest);
  return std::make_shared<const ReproduciblePlan>(std::move(plan));
}

std::shared_ptr<const ReproduciblePlan> with_blocks(const ReproduciblePlan& plan,
                                                    const BlockTable& table) {
  ReproduciblePlan laid_out = plan;
  laid_out.call = table.call;
  laid_out.call.reproducible = true;
  const std::size_t width = size_of(plan.kind.type);
  for (std::size_t block = 0; block < laid_out.blocks.size(); ++block)
    laid_out.blocks[block] = {table.blocks[block].offset / width,
                              table.blocks[block].bytes / width};
  return std::make_shared<const ReproduciblePlan>(std::move(laid_out));
}

void ReproducibleSum::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

void ReproducibleSum::start(std::shared_ptr<const ReproduciblePlan> plan, int rank,
                            const void* input, void* output, const void* premultiplier) {
  plan_ = std::move(plan);
  rank_ = rank;
  input_ = static_cast<const std::byte*>(input);
  output_ = static_cast<std::byte*>(output);
  premultiplier_ = premultiplier;
  piece_ = 0;
  stage_ = Stage::exponents;
  lay_out();
}

void ReproducibleSum::lay_out() {
  const ReproduciblePlan& plan = *plan_;
  const FixedPoint& format = *plan.format;
  const std::size_t block = std::min(plan.piece, plan.kind.count);
  const std::size_t all = plan.blocks.size() * block;
  const std::size_t exponents = padded(format.exponent_bytes(all));
  const std::size_t digits = padded(format.digit_bytes(all));
  const std::size_t results = plan.blocks.size() > 1 ? padded(format.digit_bytes(block)) : 0;
  const std::size_t scaled =
      plan.kind.op == Op::premul_sum ? padded(block * size_of(plan.kind.type)) : 0;
  const std::size_t wanted = exponents + digits + results + scaled;
  if (wanted > memory_bytes()) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, wanted)));
    bytes_.store(memory_ != nullptr ? wanted : 0, std::memory_order_relaxed);
    if (memory_ == nullptr)
      throw Error(ErrorKind::unavailable,
                  fmt::format("no memory for {} bytes of a reproducible sum", wanted));
  }
  exponents_ = memory_.get();
  digits_ = exponents_ + exponents;
  results_ = results > 0 ? digits_ + digits : digits_;
  scaled_ = digits_ + digits + results;
}

std::size_t ReproducibleSum::pieces() const noexcept {
  return std::max<std::size_t>(1, (plan_->kind.count + plan_->piece - 1) / plan_->piece);
}

std::size_t ReproducibleSum::stride() const noexcept {
  return std::min(plan_->piece, plan_->kind.count - piece_ * plan_->piece);
}

std::size_t ReproducibleSum::here(std::size_t block) const noexcept {
  const std::size_t count = plan_->blocks[block].count, before = piece_ * plan_->piece;
  return std::min(plan_->piece, count - std::min(count, before));
}

// Calls `body` with each block's summands of this piece, where its exponents and digits are, and
// how many there are.
template <typename Body>
void ReproducibleSum::for_each_block(Body&& body) {
  const CallKind& kind = plan_->kind;
  const FixedPoint& format = *plan_->format;
  for (std::size_t block = 0; block < plan_->blocks.size(); ++block) {
    const std::size_t count = here(block);
    const void* values = nullptr;
    if (count > 0)
      values = input_ + (plan_->blocks[block].first + piece_ * plan_->piece) * size_of(kind.type);
    if (count > 0 && kind.op == Op::premul_sum) {
      scale(kind, premultiplier_, values, count, scaled_);
      values = scaled_;
    }
    const std::size_t first = block * stride();
    body(values, exponents_ + format.exponent_bytes(first), digits_ + format.digit_bytes(first),
         count);
  }
}

void ReproducibleSum::take_result() {
  const CallKind& kind = plan_->kind;
  if (kind.what == Collective::reduce && kind.root != rank_) return;
  const FixedPoint& format = *plan_->format;
  const std::size_t own = plan_->blocks.size() > 1 ? static_cast<std::size_t>(rank_) : 0;
  if (here(own) == 0) return;
  const auto divide_by = static_cast<std::uint32_t>(kind.op == Op::avg ? plan_->ranks : 1);
  format.value_of(results_, exponents_ + format.exponent_bytes(own * stride()), here(own),
                  divide_by, output_ + piece_ * plan_->piece * size_of(kind.type));
}

// As lay_out() of variable_blocks.h writes it for reduce_scatterv.
const BlockTable& ReproducibleSum::digit_blocks(const CallSignature& like) {
  const FixedPoint& format = *plan_->format;
  const std::size_t ranks = plan_->blocks.size();
  table_.blocks.resize(2 * ranks);
  table_.call = like;
  table_.call.count = 0;
  table_.call.lengths = plan_->call.lengths;
  for (std::size_t block = 0; block < ranks; ++block) {
    const std::size_t bytes = format.digit_bytes(here(block));
    table_.blocks[block] = {bytes, format.digit_bytes(block * stride())};
    table_.blocks[ranks + block] = {bytes, 0};
    table_.call.count += bytes / size_of(format.digit);
  }
  table_.fingerprint = fingerprint(table_.call);
  return table_;
}

std::optional<ReproducibleSum::Part> ReproducibleSum::next() {
  const FixedPoint& format = *plan_->format;
  if (stage_ == Stage::result) {
    take_result();
    stage_ = Stage::exponents;
    if (++piece_ == pieces()) {
      plan_.reset();
      return std::nullopt;
    }
  }
  const ReproduciblePlan::Keys& keys = piece_ + 1 == pieces() ? plan_->last : plan_->full;
  if (stage_ == Stage::exponents) {
    for_each_block([&](const void* values, std::byte* exponents, std::byte*, std::size_t count) {
      format.exponents_of(values, count, exponents);
      // What a shorter block leaves of its place is exchanged, too.
      if (const std::size_t left = stride() - count; left > 0)
        std::memset(exponents + format.exponent_bytes(count), 0, format.exponent_bytes(left));
    });
    stage_ = Stage::digits;
    return Part{keys.exponents, exponents_, exponents_, nullptr};
  }
  for_each_block([&](const void* values, std::byte* exponents, std::byte* digits,
                     std::size_t count) { format.digits_of(values, exponents, count, digits); });
  stage_ = Stage::result;
  const BlockTable* blocks = plan_->kind.variable ? &digit_blocks(keys.digits.signature) : nullptr;
  return Part{keys.digits, digits_, results_, blocks};
}

}  // namespace tutti
