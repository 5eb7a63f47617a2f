// One call as the program makes it, and the check that it is right by itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include <tutti/types.hpp>

#include "common/wire.h"

namespace tutti {

/// What a loop repeats from call to call: checked once, and planned once.
struct CallKind {
  Collective what = Collective::barrier;
  DataType type = DataType::uint8;
  Op op = Op::sum;
  int root = 0;
  std::size_t count = 0;  ///< As the public call counts: of the vector, or of one rank's block.

  bool operator==(const CallKind&) const = default;
};

struct Call {
  CallKind kind;
  const void* input = nullptr;
  void* output = nullptr;
  std::chrono::milliseconds timeout{0};
  std::string_view algorithm = {};
};

/// Both throw `usage` naming the argument, what was given and what is possible. A call that passes
/// may be numbered.
void check_kind(const CallKind& kind, int size);
void check_buffers(const Call& call, int rank, int size);

/// "all_reduce(1024 x f32, sum)", for messages.
std::string describe(const CallSignature& call);

}  // namespace tutti
