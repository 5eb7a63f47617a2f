// One call as the program makes it, and the check that it is right by itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include <tutti/types.hpp>

#include "common/wire.h"

namespace tutti {

struct Call {
  Collective what = Collective::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count =
      0;  ///< As the public call counts: elements of the vector, or of one rank's block.
  DataType type = DataType::uint8;
  Op op = Op::sum;
  int root = 0;
  std::chrono::milliseconds timeout{0};
  std::string_view algorithm = {};
};

/// Throws `usage` naming the argument, what was given and what is possible. A call that passes may
/// be numbered.
void check_call(const Call& call, int rank, int size);

/// "all_reduce(1024 x f32, sum)", for messages.
std::string describe(const CallSignature& call);

}  // namespace tutti
