#include "common/interruptible.h"

#include <utility>

namespace tutti {
namespace {

thread_local Interruptible* innermost_interruptible = nullptr;

}  // namespace

Interruptible::Interruptible(bool (*interrupted)()) noexcept
    : interrupted_(interrupted), outer_(std::exchange(innermost_interruptible, this)) {}

Interruptible::~Interruptible() { innermost_interruptible = outer_; }

bool can_be_interrupted() noexcept {
  return innermost_interruptible != nullptr && innermost_interruptible->interrupted_ != nullptr;
}

bool is_interrupted() {
  if (!can_be_interrupted()) return false;
  Interruptible& asked = *innermost_interruptible;
  asked.said_so_ = asked.said_so_ || asked.interrupted_();
  return asked.said_so_;
}

}  // namespace tutti
