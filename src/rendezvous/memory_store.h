// A store within one process: for ranks that are threads, and for a job of one rank.
#pragma once

#include <condition_variable>
#include <mutex>

#include <tutti/store.hpp>

#include "common/fork_guard.h"
#include "rendezvous/key_table.h"

namespace tutti {

/// Thread-safe.
class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;

 private:
  const std::string& await(std::unique_lock<std::mutex>& lock, std::string_view key,
                           Deadline deadline);

  const ForkGuard fork_guard_;
  std::mutex mutex_;
  std::condition_variable changed_;
  KeyTable table_;  // guarded by mutex_
};

}  // namespace tutti
