// Calls that are made together when their group ends.
#pragma once

#include <vector>

#include <tutti/tutti.hpp>

#include "runtime/operation.h"

namespace tutti {

struct Group::Calls {
  void add(OperationRef call) { calls.push_back(std::move(call)); }
  void end();
  Work end_async();

  std::vector<OperationRef> calls;  ///< Checked, not started.

 private:
  void refuse_destroyed();
  bool can_run_here() const;
  void run_here();
  void start();
  void await();

  std::vector<OperationRef> started_;  // of the last end: keeps its memory
  std::vector<Transfer*> transfers_;   // as well
};

/// Throws `usage` where an asynchronous call, or one that makes a persistent one, names a group.
void refuse_in_group(const Group* group);

}  // namespace tutti
