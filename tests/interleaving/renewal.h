// Ranks whose communicators shrink and grow under the scheduler, over a store in their memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/tutti.hpp>

#include "common/sync.h"
#include "tests/interleaving/world.h"

namespace tutti::interleaving {

/// Serves the threads of a run as their store. The scheduler sees its waits, which no deadline
/// ends.
class RunStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;

 private:
  sync::Mutex mutex_;
  sync::Condition changed_;
  std::map<std::string, std::string, std::less<>> values_;  // guarded by mutex_
};

/// Holds what the ranks of a job and its newcomers share: the store, and a hub of the local
/// transport for each new communicator.
class Job {
 public:
  explicit Job(Scheduler& scheduler) : scheduler_(scheduler) {}

  /// Returns new communicators of `ranks` ranks, as make_members() over the local transport does.
  std::vector<Member> start(int ranks);
  /// Does what Communicator::join() does for a newcomer.
  Communicator come();

 private:
  std::shared_ptr<local::Hub> hub(const std::string& name, int size);
  CommunicatorParts join(const std::string& name, int rank, int size,
                         const std::function<void()>& check);
  std::optional<CommunicatorParts> join_round();
  void make_renewable(CommunicatorParts& parts, const std::string& name);

  Scheduler& scheduler_;
  const std::shared_ptr<RunStore> store_ = std::make_shared<RunStore>();
  sync::Mutex mutex_;
  std::map<std::string, std::shared_ptr<local::Hub>> hubs_;  // guarded by mutex_
};

}  // namespace tutti::interleaving
