// The ranks of a communicator for a scenario, with runtimes whose background threads the scheduler
// runs and whose time it simulates.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <tutti/tutti.hpp>

#include "common/sync.h"
#include "runtime/communicator_impl.h"
#include "tests/interleaving/scheduler.h"
#include "transport/local/local.h"

namespace tutti::interleaving {

/// A communicator of a rank, which a scenario may destroy before the world.
using Member = std::optional<Communicator>;

/// Over what the ranks are connected, and whether they share a runtime.
enum class World {
  in_process,  ///< The local transport and one runtime, as of Communicator::in_process().
  local,       ///< The local transport, and a runtime for each rank, as in a process of its own.
  shm,         ///< Shared memory, and a runtime for each rank.
  tcp,         ///< TCP, and a runtime for each rank.
};
inline constexpr World kWorlds[] = {World::in_process, World::local, World::shm, World::tcp};
std::string_view to_string(World world);
/// The number of seeds for a scenario over a world: runs over sockets take longer.
constexpr std::uint64_t seeds_over(World world, std::uint64_t seeds) {
  return world == World::tcp ? seeds / 10 : world == World::shm ? seeds / 3 : seeds;
}

/// A scenario that names no longest message has this one, so that short calls have several.
inline constexpr std::size_t kShortMessages = 1024;

/// Returns new communicators of `ranks` ranks, indexed by rank. Their waits sleep after few polls,
/// no deadline ever passes, and the log is empty. Making them is no part of the interleaving.
std::vector<Member> make_members(Scheduler& scheduler, int ranks, World world,
                                 std::size_t message_bytes = kShortMessages);

/// Returns the parts of such communicators, connected, indexed by rank.
std::vector<CommunicatorParts> make_parts(Scheduler& scheduler, int ranks, World world,
                                          std::size_t message_bytes = kShortMessages);
/// Returns the parts of one rank with a runtime of its own, over the local transport, which is not
/// connected.
CommunicatorParts make_part(Scheduler& scheduler, int rank, int ranks,
                            std::shared_ptr<local::Hub> hub);

/// Represents an event for which a thread waits without advancing any communicator, as one that
/// computes would. The threads share it, since the one that waits may go on before happen()
/// returns.
class Event {
 public:
  void happen() {
    happened_ = 1;
    happened_.notify_all();
  }
  void wait() {
    while (happened_ == 0) happened_.wait(0);
  }

 private:
  sync::Atomic<int> happened_{0};
};

/// Calls the bodies side by side, each in a thread of its own, and returns when all have returned.
void together(const std::vector<std::function<void()>>& bodies);
/// Calls `body` with each rank's communicator, side by side.
void on_each(std::vector<Member>& members, const std::function<void(Communicator&)>& body);

/// Returns duplicates of the communicators. Making them is no part of the interleaving.
std::vector<Member> duplicates(Scheduler& scheduler, std::vector<Member>& members);

/// Checks that a blocking sum over all ranks is right.
void check_sum(Scheduler& scheduler, Communicator& communicator);
/// Calls `call`, and returns the kind of the error that it throws; none where it returns.
std::optional<ErrorKind> error_of(const std::function<void()>& call);

}  // namespace tutti::interleaving
