// A store within one process, for ranks that are threads and for a job of one rank.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include <tutti/store.hpp>

#include "common/process_owned.h"
#include "rendezvous/store/key_table.h"

namespace tutti {

/// A store in this process's memory. Thread-safe.
class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;
  std::string get_unless(std::string_view key, const Unless& unless, Deadline deadline) override;

 private:
  struct Waiting {
    std::condition_variable changed;
    int threads = 0;
  };
  struct Shared {
    std::mutex mutex;
    KeyTable table;                                       // guarded by mutex
    std::map<std::string, Waiting, std::less<>> waiting;  // indexed by key; guarded by mutex

    std::map<std::string, int, std::less<>> unless;  // the threads that look at each key beside
                                                     // that for which they wait; by mutex, too

    void wake(std::string_view key);  // the caller holds mutex
  };
  ProcessOwned<Shared> shared_{"the store"};
};

}  // namespace tutti
