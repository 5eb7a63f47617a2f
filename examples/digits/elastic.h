// Training that goes on when ranks end, and takes newcomers in.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "train.h"

namespace digits {

struct ElasticSettings {
  /// How long the others wait for a rank that is not known to have ended.
  std::chrono::milliseconds patience{10'000};
  /// How long they wait for newcomers in the place of ranks that have ended; 0: they do not.
  std::chrono::milliseconds await_newcomers{10'000};

  /// To show what happens.
  struct Fault {
    int rank = 0;          // as it was at the start
    std::size_t step = 0;  // from 0 to the last of all epochs
  };
  std::vector<Fault> kills;   // The rank kills itself (SIGKILL) in the middle of the step.
  std::vector<Fault> aborts;  // It aborts in place of the step, for which the others have all.
};

/// Receives what happens beside the training, on the thread that trains.
class Events {
 public:
  virtual ~Events() = default;
  virtual void happened(const std::string& what) = 0;
};

struct ElasticResult {
  Result result;
  int rank = 0;  // of this process, in the end
};

/// Trains like train(), on ranks that are processes (`join` is false) or as a newcomer to their
/// running job (`join` is true), which gets settings, state and step from them. The result is the
/// same on all ranks that are left.
///
/// When a rank ends, the others shrink, go back to the last step that all of them have finished,
/// and go on. After at least one epoch without it they wait for a newcomer, and grow. At the end,
/// it throws `internal` unless each sample has been in exactly one step of each epoch. It throws
/// what Communicator::shrink() throws if there is no going on.
ElasticResult train_elastic(bool join, const Dataset& data, const Settings& settings,
                            const ElasticSettings& elastic, Observer& observer, Events& events);

}  // namespace digits
