#include "runtime/reproducible.h"

#include <algorithm>
#include <cstdlib>
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
    const CallKind& kind, int ranks, const std::function<CallKey(const CallKind&)>& key_of) {
  if (kind.variable)
    throw Error(ErrorKind::unavailable,
                fmt::format("{}: accumulate = reproducible is not there yet for blocks of "
                            "different lengths; give it accumulate = step in its options",
                            name_of(kind.what, true)));
  if (ranks > FixedPoint::kMostSummands)
    throw Error(ErrorKind::unavailable,
                fmt::format("{}: accumulate = reproducible sums over at most {} ranks, not {}",
                            to_string(kind.what), FixedPoint::kMostSummands, ranks));
  ReproduciblePlan plan{kind, fixed_point_of(kind.type), ranks, 1, 0, {}, {}};
  if (collectives::layout_of(kind.what) == Layout::blocks)
    plan.blocks = static_cast<std::size_t>(ranks);
  plan.piece = std::max<std::size_t>(1, kPiece / plan.blocks);
  const auto keys = [&](std::size_t count) -> ReproduciblePlan::Keys {
    const FixedPoint& format = *plan.format;
    CallKind exponents{Collective::all_reduce, format.exponent, Op::max, 0,
                       plan.blocks * count * static_cast<std::size_t>(format.exponents)};
    CallKind digits{kind.what, format.digit, Op::sum, kind.root,
                    count * static_cast<std::size_t>(format.digits)};
    return {key_of(exponents), key_of(digits)};
  };
  plan.full = keys(std::min(plan.piece, kind.count));
  const std::size_t rest = kind.count % plan.piece;
  plan.last = rest == 0 ? plan.full : keys(rest);
  return std::make_shared<const ReproduciblePlan>(plan);
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
  const std::size_t all = plan.blocks * block;
  const std::size_t exponents = padded(format.exponent_bytes(all));
  const std::size_t digits = padded(format.digit_bytes(all));
  const std::size_t results = plan.blocks > 1 ? padded(format.digit_bytes(block)) : 0;
  const std::size_t scaled =
      plan.kind.op == Op::premul_sum ? padded(block * size_of(plan.kind.type)) : 0;
  if (exponents + digits + results + scaled > bytes_) {
    bytes_ = exponents + digits + results + scaled;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes_)));
    if (memory_ == nullptr) {
      const std::size_t wanted = std::exchange(bytes_, 0);
      throw Error(ErrorKind::unavailable,
                  fmt::format("no memory for {} bytes of a reproducible sum", wanted));
    }
  }
  exponents_ = memory_.get();
  digits_ = exponents_ + exponents;
  results_ = results > 0 ? digits_ + digits : digits_;
  scaled_ = digits_ + digits + results;
}

std::size_t ReproducibleSum::pieces() const noexcept {
  return std::max<std::size_t>(1, (plan_->kind.count + plan_->piece - 1) / plan_->piece);
}

std::size_t ReproducibleSum::here() const noexcept {
  return std::min(plan_->piece, plan_->kind.count - piece_ * plan_->piece);
}

// Calls `body` with each block's summands of this piece, where its exponents and digits are.
template <typename Body>
void ReproducibleSum::for_each_block(Body&& body) {
  const CallKind& kind = plan_->kind;
  const FixedPoint& format = *plan_->format;
  for (std::size_t block = 0; block < plan_->blocks; ++block) {
    const void* values = input_ + (block * kind.count + piece_ * plan_->piece) * size_of(kind.type);
    if (kind.op == Op::premul_sum) {
      scale(kind, premultiplier_, values, here(), scaled_);
      values = scaled_;
    }
    const std::size_t first = block * here();
    body(values, exponents_ + format.exponent_bytes(first), digits_ + format.digit_bytes(first));
  }
}

void ReproducibleSum::take_result() {
  const CallKind& kind = plan_->kind;
  if (kind.what == Collective::reduce && kind.root != rank_) return;
  const FixedPoint& format = *plan_->format;
  const std::size_t own = plan_->blocks > 1 ? static_cast<std::size_t>(rank_) * here() : 0;
  const auto divide_by = static_cast<std::uint32_t>(kind.op == Op::avg ? plan_->ranks : 1);
  format.value_of(results_, exponents_ + format.exponent_bytes(own), here(), divide_by,
                  output_ + piece_ * plan_->piece * size_of(kind.type));
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
    for_each_block([&](const void* values, std::byte* exponents, std::byte*) {
      format.exponents_of(values, here(), exponents);
    });
    stage_ = Stage::digits;
    return Part{keys.exponents, exponents_, exponents_};
  }
  for_each_block([&](const void* values, std::byte* exponents, std::byte* digits) {
    format.digits_of(values, exponents, here(), digits);
  });
  stage_ = Stage::result;
  return Part{keys.digits, digits_, results_};
}

}  // namespace tutti
