// A world as plain data: its ranks, what each of them calls, and what goes wrong. A plan follows
// from a seed, and parts can be left out of it, so that a world that fails can be made smaller.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/types.hpp>

#include "transport/faulty/faulty.h"

namespace tutti::worlds {

/// Names the kind of a step of the program. All ranks of a communicator make it, unless it says
/// otherwise.
enum class What {
  collective,
  exchange,  ///< A send to one rank and a receive from another, which may be from any.
  group,     ///< An exchange and a collective in one group.
  split,     ///< Makes the communicators of slot `child`.
  abort,     ///< One rank aborts the communicator.
  mismatch,  ///< One rank calls a collective with another count.
  end,       ///< Destroys the communicator.
};

/// One step. A slot is a set of communicators that one step has made; each rank is in one of them
/// at most. Choices of single ranks (asynchronous or not, callbacks) follow from `salt`.
struct Step {
  What what = What::collective;
  int slot = 0;
  std::uint64_t salt = 0;
  Collective collective = Collective::barrier;
  DataType type = DataType::int32;
  Op op = Op::sum;
  std::size_t count = 0;
  int root = 0;   // modulo the size of the communicator
  int shift = 0;  // of an exchange: to rank + shift, modulo the size
  bool any_source = false;
  bool in_place = false;
  int child = 0;   // of a split: its slot
  int colors = 1;  // of a split: 1 is a dup
};

/// Describes a fault in the network of "verbs", which no result may show: a queue pair fails, or a
/// port goes down or comes up again.
struct NetworkEvent {
  enum class What { pair_fails, port_down, port_up };
  TimePoint at;
  What what = What::pair_fails;
  int port = 0;  // The ports of rank 0 come first.
};

struct Plan {
  std::uint64_t seed = 0;
  std::string transport;   // "local", "stream", "shm", "tcp" or "verbs"
  bool decorated = false;  // whether the transport is wrapped into transport/faulty
  int ranks = 2;
  int bases = 1;  // the slots from 0 on that have communicators of all ranks
  int slots = 1;
  std::vector<Step> steps;
  faulty::Faults faults;
  Nanoseconds timeout{};
  std::size_t message_bytes = 1024;  // the largest message
  int ports = 1;                     // of each rank, over "verbs"
  bool at_once = true;               // whether all queue pairs are made at the start
  std::vector<NetworkEvent> network;
  int slow_rank = -1;  // pauses before some of its steps
  // At the end, the ranks that are left may make a new communicator: without newcomers they shrink.
  bool renews = false;
  int newcomers = 0;        // by how many they grow
  int spare_newcomers = 0;  // these come in vain
  // This rank ends meanwhile, after so many steps of its agreement. Numbers from `ranks` on are
  // newcomers.
  int dies_in_renewal = -1;
  int dies_after_steps = 0;
};

/// Returns the plan of a seed. "faulty-local" and the like are those transports decorated.
Plan plan_of(std::uint64_t seed, std::string_view transport);

/// Returns the world rank of each member of the communicator that `rank` is in at `slot`, in order;
/// empty if it is in none.
std::vector<int> members(const Plan& plan, int slot, int rank);

/// A rank passes this to a split: less than 0 stands for no communicator.
int color_of(const Step& split, int rank);
int key_of(const Step& split, int rank);

std::string describe(const Plan& plan);
std::string describe(const Step& step);
std::string describe(const faulty::Event& event);
std::string describe(const NetworkEvent& event);

/// Returns smaller plans, those first that leave out most.
std::vector<Plan> smaller(const Plan& plan);

}  // namespace tutti::worlds
