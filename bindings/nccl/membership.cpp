// Implements the functions that make communicators.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/nccl/communicator.h"
#include "bindings/nccl/errors.h"
#include "bindings/nccl/group.h"
#include "bindings/nccl/unique_id.h"

namespace tutti::nccl {
namespace {

// The part of a store for the communicator that its id makes.
constexpr const char* kPart = "nccl";

Store::Deadline startup_deadline(const ncclComm& comm) {
  return std::chrono::steady_clock::now() + comm.settings.config.startup_timeout;
}

std::shared_ptr<ncclComm> new_comm(Settings settings, int rank, int size,
                                   std::optional<int> device) {
  const Gpu* const gpu = Gpu::find();
  const int its = gpu == nullptr ? -1 : device ? *device : gpu->current_device();
  if (its >= 0 && !settings.config.origins.contains("device"))
    settings.config.device = std::to_string(its);
  return std::make_shared<ncclComm>(std::move(settings), rank, size, gpu, its);
}

// Returns a communicator of ranks of `parent`, with its device. A program that gets no handle waits
// for its parent.
std::shared_ptr<ncclComm> new_child(const std::shared_ptr<ncclComm>& parent, int rank, int size,
                                    const ncclConfig_t* config, bool is_unseen = false) {
  Settings settings = parent->settings;
  apply(config, settings);
  if (is_unseen) settings.blocking = parent->settings.blocking;
  auto child =
      std::make_shared<ncclComm>(std::move(settings), rank, size, parent->gpu, parent->device);
  child->parent = parent;
  child->is_unseen = is_unseen;
  child->secret_of_id = parent->secret_of_id;
  const std::lock_guard lock(parent->making);
  std::erase_if(parent->parts, [](const auto& part) { return part.expired(); });
  parent->parts.push_back(child);
  return child;
}

// Notices what would let the ranks wait for each other without end: two processes with one rank,
// and ranks that were given different numbers of ranks.
void register_rank(Store& store, int rank, int size, Store::Deadline deadline) {
  const std::string text = std::to_string(rank);
  if (store.add("rank/" + text, 1, deadline) != 1)
    throw Failure(ncclInvalidUsage, "rank " + text +
                                        " has come to this ncclUniqueId before: an id makes one "
                                        "communicator, in which each rank is one call");
  if (store.add("came", 1, deadline) == 1) store.set("size", std::to_string(size), deadline);
  const std::string first = store.get("size", deadline);
  if (first != std::to_string(size))
    throw Failure(ncclInvalidUsage, "rank " + text + " was given " + std::to_string(size) +
                                        " ranks, and the rank that came first " + first);
}

void meet(ncclComm& comm, std::shared_ptr<Part> store) {
  comm.store = std::move(store);
  Config config = comm.settings.config;
  if (config.secret.empty() && config.secret_file.empty()) config.secret = comm.secret_of_id;
  comm.made.emplace(Communicator::create(comm.store, comm.rank, comm.size, config));
}

// Where `make` throws, the ranks that wait for this one are told.
template <typename Function>
void tell_failure(Part& store, int rank, const std::atomic<bool>& given_up, Function&& make) {
  try {
    make();
  } catch (const std::exception& error) {
    const auto* its = dynamic_cast<const Error*>(&error);
    // A rank that has lost another one has been told of it, as the others are.
    if (its == nullptr || its->kind() != ErrorKind::peer_lost || given_up)
      store.fail("rank " + std::to_string(rank) + " failed to join: " + error.what());
    throw;
  }
}

// Tells the others that a rank was aborted before it had come, if the store can be reached at once.
void tell_abort(const ncclUniqueId& id, const ncclComm& comm) noexcept {
  try {
    constexpr std::chrono::seconds kLimit{1};
    const std::atomic<bool> never{false};
    Part(open_store(id, comm.settings, std::chrono::steady_clock::now() + kLimit, never), kPart,
         comm.given_up)
        .fail("rank " + std::to_string(comm.rank) + " was aborted before it had joined");
  } catch (const std::exception&) {
    // The others wait until their deadline.
  }
}

std::shared_ptr<Store> reach_store(const ncclUniqueId& id, const ncclComm& comm,
                                   Store::Deadline deadline) {
  try {
    return open_store(id, comm.settings, deadline, *comm.given_up);
  } catch (const Error&) {
    if (*comm.given_up) tell_abort(id, comm);
    throw;
  }
}

// Joins the ranks that have come to this part of the store.
void join_part(ncclComm& comm, std::shared_ptr<Store> whole, const std::string& name,
               Store::Deadline deadline) {
  auto store = std::make_shared<Part>(std::move(whole), name, comm.given_up);
  const std::string rank = std::to_string(comm.rank);
  store->fail_when_gone("rank " + rank + " has ended before it had joined the others", deadline);
  tell_failure(*store, comm.rank, *comm.given_up, [&] {
    register_rank(*store, comm.rank, comm.size, deadline);
    store->share_keys(comm.size);
    meet(comm, store);
  });
  store->has_joined();
}

Make by_id(const ncclUniqueId& id) {
  return [id](ncclComm& comm) {
    const Store::Deadline deadline = startup_deadline(comm);
    comm.secret_of_id = secret_of(id);
    join_part(comm, reach_store(id, comm, deadline), kPart, deadline);
  };
}

/// The communicators of known ids that this process makes take their numbers in the order of the
/// calls, although several threads make them.
class Turn {
 public:
  Turn() {
    static std::mutex mutex;
    static std::shared_future<void> last;
    const std::lock_guard lock(mutex);
    before_ = std::exchange(last, passed_.get_future().share());
  }
  ~Turn() { pass(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void await(Store::Deadline deadline, const std::atomic<bool>& given_up) const {
    constexpr std::chrono::milliseconds kLook{100};
    if (!before_.valid()) return;
    while (before_.wait_for(kLook) != std::future_status::ready) {
      if (given_up) throw Error(ErrorKind::peer_lost, "the communicator was aborted");
      if (std::chrono::steady_clock::now() >= deadline)
        throw Error(ErrorKind::timeout,
                    "an earlier communicator of NCCL_COMM_ID has not reached the store");
    }
  }
  void pass() {
    if (!std::exchange(has_passed_, true)) passed_.set_value();
  }

 private:
  std::promise<void> passed_;
  std::shared_future<void> before_;
  bool has_passed_ = false;
};

// Each rank counts the communicators of the same size in which it has had this number.
std::string next_part(Store& whole, const ncclComm& comm, Store::Deadline deadline) {
  constexpr std::chrono::seconds kAnswer{5};
  const std::string of_size = std::string(kPart) + " of " + std::to_string(comm.size);
  const auto number = whole.add(of_size + "/rank " + std::to_string(comm.rank), 1,
                                std::min(deadline, std::chrono::steady_clock::now() + kAnswer));
  return of_size + "/" + std::to_string(number);
}

// A process that served the address before, or a child that it forked, may be about to end.
void serve_known(const ncclUniqueId& id, const ncclComm& comm) {
  constexpr std::chrono::seconds kPatience{5};
  for (const auto last = std::chrono::steady_clock::now() + kPatience;;) {
    try {
      return serve(id, comm.settings);
    } catch (const Error& error) {
      const bool late = *comm.given_up || std::chrono::steady_clock::now() >= last;
      if (error.kind() != ErrorKind::unavailable || late) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

// The bytes of a known id are no secret: without the job's secret anybody can compute them.
Make by_known_id(const ncclUniqueId& id) {
  return [id, turn = std::make_shared<Turn>()](ncclComm& comm) {
    const Store::Deadline deadline = startup_deadline(comm);
    std::shared_ptr<Store> whole;
    std::string part;
    try {
      if (comm.rank == 0) serve_known(id, comm);
      whole = open_store(id, comm.settings, deadline, *comm.given_up);
      turn->await(deadline, *comm.given_up);
      part = next_part(*whole, comm, deadline);
    } catch (...) {
      turn->pass();
      throw;
    }
    turn->pass();
    join_part(comm, std::move(whole), part, deadline);
  };
}

void check_place(ncclComm_t* place) {
  require(place != nullptr, "the place for the communicator is null");
  *place = nullptr;
}

ncclResult_t init(ncclComm_t* place, int size, const ncclUniqueId& id, int rank,
                  const ncclConfig_t* config, std::optional<int> device = std::nullopt) {
  check_place(place);
  require(size >= 1, "the number of ranks is less than 1");
  require(rank >= 0 && rank < size, "the rank is not within 0 .. nranks - 1");
  require(is_id(id), "the ncclUniqueId was not made by ncclGetUniqueId of this library");
  Settings settings = settings_of_process();
  apply(config, settings);
  return begin(new_comm(std::move(settings), rank, size, device), place,
               is_known(id) ? by_known_id(id) : by_id(id));
}

ncclResult_t init_all(ncclComm_t* comms, int count, const int* devices) {
  require(comms != nullptr, "the place for the communicators is null");
  require(count >= 1, "the number of devices is less than 1");
  std::fill_n(comms, count, nullptr);
  const Gpu* const gpu = Gpu::find();
  const int there = gpu == nullptr ? 0 : gpu->count();
  std::set<int> named;
  for (int rank = 0; rank < count && gpu != nullptr; ++rank) {
    const int device = devices == nullptr ? rank : devices[rank];
    require(device >= 0 && device < there, "a device is not one of this machine's");
    if (!named.insert(device).second)
      throw Failure(ncclInvalidUsage, "device " + std::to_string(device) +
                                          " is twice in the list: name each once, or make ranks "
                                          "that share one with ncclCommInitRank");
  }
  const ncclUniqueId id = make_id(settings_of_process());
  ThreadGroup& group = thread_group();
  group.start();
  ncclResult_t result = ncclSuccess;
  for (int rank = 0; rank < count && result == ncclSuccess; ++rank)
    result = group.note(guarded([&] {
      return init(&comms[rank], count, id, rank, nullptr,
                  devices == nullptr ? rank : devices[rank]);
    }));
  result = group.end();
  if (result == ncclSuccess || result == ncclInProgress) return result;
  for (int rank = 0; rank < count; ++rank)
    if (const auto made = find(std::exchange(comms[rank], nullptr))) destroy_once(made);
  return result;
}

// Makes `comm`, of the ranks of `members`, whose order gives their new numbers.
void regroup(ncclComm& comm, const ncclComm& parent, const std::vector<int>& members,
             const std::string& name) {
  const auto own = std::find(members.begin(), members.end(), parent.rank);
  comm.rank = static_cast<int>(own - members.begin());
  comm.size = static_cast<int>(members.size());
  const auto store = parent.store->part(name, comm.given_up);
  store->share_keys(comm.size);
  tell_failure(*store, comm.rank, *comm.given_up, [&] { meet(comm, store); });
}

// Returns the ranks with the color of this rank, in their order, for a parent that can exchange
// nothing but through the store, since it has been revoked.
std::vector<int> members_by_store(const ncclComm& parent, const std::string& name, int color,
                                  int key, const Part::GivenUp& given_up) {
  const Store::Deadline deadline = startup_deadline(parent);
  const auto table = parent.store->part(name, given_up);
  table->share_keys(parent.size);
  table->set(std::to_string(parent.rank), std::to_string(color) + " " + std::to_string(key),
             deadline);
  std::vector<std::pair<int, int>> found;  // key and rank
  for (int rank = 0; rank < parent.size; ++rank) {
    const std::string card = table->get(std::to_string(rank), deadline);
    if (std::stoi(card) == color) found.emplace_back(std::stoi(card.substr(card.find(' '))), rank);
  }
  std::sort(found.begin(), found.end());
  std::vector<int> members;
  for (const auto& [unused, rank] : found) members.push_back(rank);
  return members;
}

Make by_split(std::shared_ptr<ncclComm> owner, int color, int key) {
  return [owner = std::move(owner), color, key](ncclComm& comm) {
    ncclComm& parent = *owner;
    const Calling calling(parent, Calling::For::part);
    const std::string name = "split " + std::to_string(parent.derived++);
    if (parent.revoked) {
      const auto members = members_by_store(parent, name, color, key, comm.given_up);
      if (color == kNoColor) return;
      return regroup(comm, parent, members, name + " color " + std::to_string(color));
    }
    auto part = calling.communicator().split(color == kNoColor ? tutti::kNoColor : color, key);
    if (!part) return;
    comm.rank = part->rank();
    comm.size = part->size();
    comm.store = parent.store->part(name + " color " + std::to_string(color), comm.given_up);
    comm.made.emplace(std::move(*part));
  };
}

// Like ready(), also for a communicator that has been revoked or has failed.
std::shared_ptr<ncclComm> ready_to_regroup(ncclComm_t comm) {
  std::shared_ptr<ncclComm> its = whole(comm);
  const ncclResult_t state = its->state.load(std::memory_order_acquire);
  require(state != ncclInProgress, "the communicator is still being made or finalized");
  if (state != ncclSuccess) throw Failure(state, its->error);
  if (its->finalized) throw Failure(ncclInvalidUsage, "the communicator has been finalized");
  return its;
}

ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* place,
                   const ncclConfig_t* config) {
  check_place(place);
  const auto parent = ready_to_regroup(comm);
  require(color >= kNoColor, "the color is neither NCCL_SPLIT_NOCOLOR nor 0 or more");
  return begin(new_child(parent, 0, 0, config, color == kNoColor), place,
               by_split(parent, color, key));
}

ncclResult_t shrink(ncclComm_t comm, std::span<const int> excluded, ncclComm_t* place,
                    const ncclConfig_t* config, int flags) {
  check_place(place);
  const auto owner = ready_to_regroup(comm);
  ncclComm& parent = *owner;
  require(flags == 0 || flags == kShrinkAbort, "shrinkFlags are neither 0 nor NCCL_SHRINK_ABORT");
  const std::set<int> without(excluded.begin(), excluded.end());
  require(!without.empty() && without.size() == excluded.size(),
          "the list of ranks to leave out is empty, or names a rank twice");
  require(*without.begin() >= 0 && *without.rbegin() < parent.size,
          "the list of ranks to leave out names one that the communicator does not have");
  require(!without.contains(parent.rank), "a rank that is left out does not call ncclCommShrink");
  std::vector<int> members;
  std::string name = " without";
  for (int rank = 0; rank < parent.size; ++rank)
    if (!without.contains(rank)) members.push_back(rank);
  for (const int rank : without) name.append(" ").append(std::to_string(rank));
  if (flags == kShrinkAbort) abort(parent, "ncclCommShrink was called with NCCL_SHRINK_ABORT");
  return begin(new_child(owner, 0, 0, config), place, [owner, members, name](ncclComm& made) {
    const Calling calling(*owner, Calling::For::part);
    regroup(made, *owner, members, "shrink " + std::to_string(owner->shrunk++) + name);
  });
}

// Returns the id that one of the ranks has. All ranks of `parent` call it.
ncclUniqueId agreed_id(ncclComm& parent, const ncclUniqueId* id) {
  struct Said {
    int has_id;
    ncclUniqueId id;
  };
  const Said own{id != nullptr, id == nullptr ? ncclUniqueId{} : *id};
  std::vector<Said> all(static_cast<std::size_t>(parent.size));
  Calling(parent, Calling::For::part)
      .communicator()
      .all_gather(&own, all.data(), sizeof own, DataType::uint8);
  const auto has_id = [](const Said& said) { return said.has_id == 1; };
  if (std::count_if(all.begin(), all.end(), has_id) != 1)
    throw Failure(ncclInvalidUsage,
                  "exactly one of the ranks passes an id to ncclCommGrow, the others null");
  return std::find_if(all.begin(), all.end(), has_id)->id;
}

ncclResult_t grow(ncclComm_t comm, int size, const ncclUniqueId* id, int rank, ncclComm_t* place,
                  const ncclConfig_t* config) {
  check_place(place);
  if (comm == nullptr) {
    require(id != nullptr, "a new rank needs the id of ncclCommGetUniqueId");
    return init(place, size, *id, rank, config);
  }
  const auto owner = ready(comm);
  ncclComm& parent = *owner;
  require(size > parent.size, "nRanks is not more than the communicator has");
  require(rank == -1, "the rank of a process that is in the communicator is -1 here");
  require(id == nullptr || is_id(*id), "the id was not made by ncclCommGetUniqueId");
  std::optional<ncclUniqueId> given;
  if (id != nullptr) given = *id;
  return begin(new_child(owner, parent.rank, size, config), place, [owner, given](ncclComm& made) {
    by_id(agreed_id(*owner, given ? &*given : nullptr))(made);
  });
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_FUNCTION(ncclResult_t, ncclGetUniqueId, ncclUniqueId* id) {
  return guarded([&] {
    require(id != nullptr, "the place for the id is null");
    const Settings settings = settings_of_process();
    const auto known = variable("NCCL_COMM_ID");
    *id = known ? known_id(*known, settings) : make_id(settings);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommGetUniqueId, ncclComm_t comm, ncclUniqueId* id) {
  return guarded([&] {
    const auto its = ready(comm);
    require(id != nullptr, "the place for the id is null");
    *id = make_id(its->settings);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int ranks, ncclUniqueId id,
              int rank) {
  return in_group([&] { return init(comm, ranks, id, rank, nullptr); });
}

NCCL_FUNCTION(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int ranks, ncclUniqueId id,
              int rank, ncclConfig_t* config) {
  return in_group([&] { return init(comm, ranks, id, rank, config); });
}

// One store serves all ranks, so that the first id suffices.
NCCL_FUNCTION(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* comm, int ranks, int rank,
              int ids, ncclUniqueId* id, ncclConfig_t* config) {
  return in_group([&] {
    require(ids >= 1 && ids <= std::max(ranks, 1) && id != nullptr,
            "the number of ids is not within 1 .. nranks, or their list is null");
    return init(comm, ranks, id[0], rank, config);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommInitAll, ncclComm_t* comms, int count, const int* devices) {
  return in_group([&] { return init_all(comms, count, devices); });
}

NCCL_FUNCTION(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* part,
              ncclConfig_t* config) {
  return in_group([&] { return split(comm, color, key, part, config); });
}

NCCL_FUNCTION(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* excluded, int count,
              ncclComm_t* rest, ncclConfig_t* config, int flags) {
  return in_group([&] {
    require(count >= 1 && excluded != nullptr, "the list of ranks to leave out is empty");
    return shrink(comm, {excluded, static_cast<std::size_t>(count)}, rest, config, flags);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommGrow, ncclComm_t comm, int ranks, const ncclUniqueId* id,
              int rank, ncclComm_t* grown, ncclConfig_t* config) {
  return in_group([&] { return grow(comm, ranks, id, rank, grown, config); });
}
