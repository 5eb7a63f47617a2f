// The reference model: what each call of a world may leave in memory, and by which errors it may
// end.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tutti/error.hpp>

#include "plan.h"

namespace tutti::worlds {

/// One call's memory on one rank: input and output, with guard bytes around both, and what must be
/// in it after the call.
struct Memory {
  std::vector<std::byte> bytes, before, after;
  std::size_t input = 0, output = 0;  // where they begin
  std::size_t output_bytes = 0;

  std::byte* in() { return bytes.data() + input; }
  std::byte* out() { return bytes.data() + output; }
  /// Returns what is wrong after the call has ended well, or after an error, when the output may
  /// hold anything; empty if nothing is.
  std::string wrong(bool output_known) const;
};

/// The memory of a collective of rank `me` among `members`, which are world ranks.
Memory memory_of_collective(const Step& step, const std::vector<int>& members, int me);
/// The memory of a send of world rank `rank`, and of the receive of what `source` sends.
Memory memory_of_send(const Step& step, int rank);
Memory memory_of_recv(const Step& step, int source);

/// Records what has happened in a world beside the faults of its plan, indexed by step.
struct Happened {
  std::vector<bool> begun;                  // an abort or a mismatch
  std::vector<std::set<ErrorKind>> broken;  // the errors of a split that failed on some ranks
};

/// Returns the kinds of errors that calls on the communicator of `rank` in `slot` may end with by
/// `now`; none if they must succeed.
std::set<ErrorKind> allowed(const Plan& plan, const Happened& happened, int slot, int rank,
                            TimePoint now);
/// Whether a bit of a message of that communicator may have been changed unnoticed.
bool may_be_wrong(const Plan& plan, const std::vector<int>& members);

}  // namespace tutti::worlds
