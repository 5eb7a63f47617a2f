// Helpers for tests of jobs whose ranks end and that take newcomers in, with ranks as processes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "over_transports.h"
#include "processes.h"
#include "threads.h"

namespace tutti::test {

/// Ends a rank with this text unless `what` holds.
inline void expect(bool what, const std::string& name) {
  if (!what) throw Error(ErrorKind::internal, name);
}

/// Returns what each rank of the communicator passed for `own`, by rank.
inline std::vector<int> who(Communicator& comm, int own) {
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::span<const int>(&own, 1), std::span(all));
  return all;
}

/// Calls barrier until it fails, as it must.
inline void fail(Communicator& comm) {
  const std::string failure = outcome_of([&] {
    for (;;) comm.barrier();
  });
  expect(failure.starts_with("peer_lost"), failure);
}

/// A job whose ranks start from the environment, with a store in rank 0 or in a file, over the
/// transport of the process.
class GrowingJob : public OverTransports {
 protected:
  void over(const std::vector<const char*>& transports, const std::function<void()>& body) {
    OverTransports::over(transports, [&] {
      path_ = testing::TempDir() + "grow-" + std::to_string(getpid());
      file_ = "file://" + path_;
      body();
      unlink(path_.c_str());
    });
  }

  Config config(const std::string& store = "auto") const {
    Config config = quick_config(transport_);
    config.store = store;
    return config;
  }
  Communicator start(int rank, int size, const std::string& store = "auto") const {
    set_environment(rank, size, port_);
    return Communicator::from_env(config(store));
  }
  /// A newcomer knows nothing but where the job is.
  void set_newcomers_environment() const {
    set_environment(0, 1, port_);
    for (const char* const name : {"RANK", "LOCAL_RANK", "WORLD_SIZE"}) unsetenv(name);
  }
  Communicator come(const std::string& store = "auto") const {
    set_newcomers_environment();
    return Communicator::join(config(store));
  }

  std::string path_, file_;
};

}  // namespace tutti::test
