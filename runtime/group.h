// Groups: calls that are started together when their group ends.
#pragma once

#include <cassert>
#include <vector>

#include <tutti/tutti.hpp>

#include "runtime/operation.h"

namespace tutti {

struct Group::Calls {
  void add(OperationRef call) {
    assert(call && !call->done());
    calls.push_back(std::move(call));
  }
  void end();
  Work end_async();
  std::vector<Work> start();

  std::vector<OperationRef> calls;  ///< They have been checked, but not started.

 private:
  class Marks;
  void refuse_destroyed();
  bool can_run_here() const;
  void run_here();
  void take();
  void await();

  std::vector<OperationRef> started_;      // those of the last end(); its memory is reused
  std::vector<Transfer*> transfers_;       // its memory is reused, too
  std::vector<CommunicatorImpl*> marked_;  // its memory is reused, too; see Marks
};

/// Throws `usage` if `group` is not null: neither an asynchronous call nor the making of a
/// persistent one may name a group.
void refuse_in_group(const Group* group);

}  // namespace tutti
