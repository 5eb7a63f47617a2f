// Implements versions, errors and communicators of the C ABI.
#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "bindings/c/guarded.h"
#include "bindings/c/handles.h"
#include "bindings/c/store.h"
#include "bindings/c/structs.h"
#include "runtime/communicator_impl.h"

namespace tutti::c {
namespace {

// Sets the caller's handle to null if `make` fails.
template <typename Make>
tuttiResult_t make_comm(tuttiComm_t* comm, Make&& make) noexcept {
  return guarded([&] {
    result(comm, "the communicator's place") = nullptr;
    *comm = make();
  });
}

struct Interrupting {
  int (*function)() = nullptr;  // the program's
  std::optional<Interruptible> interruptible;
};
thread_local Interrupting interrupting;

tuttiComm_t handle(Communicator comm) { return new tuttiComm(std::move(comm)); }
tuttiComm_t handle(std::optional<Communicator> comm) {
  return comm ? handle(std::move(*comm)) : nullptr;
}

Communicator& communicator(tuttiComm_t comm) { return checked(comm, "comm").communicator; }

// `call` names the call in the error.
std::span<const int> list(const char* call, const int* ranks, int count) {
  if (count < 0 || (ranks == nullptr && count > 0))
    throw tutti::Error(tutti::ErrorKind::usage, std::string(call) + ": " + std::to_string(count) +
                                                    " ranks, and their list is " +
                                                    (ranks == nullptr ? "null" : "there"));
  return {ranks, static_cast<std::size_t>(count)};
}

std::chrono::milliseconds patience(std::int64_t milliseconds) {
  constexpr std::chrono::seconds kDefault{10};
  return milliseconds == 0 ? kDefault : std::chrono::milliseconds(milliseconds);
}

}  // namespace
}  // namespace tutti::c

using namespace tutti::c;
using tutti::Communicator;

tuttiComm::tuttiComm(Communicator c) : communicator(std::move(c)) {
  tutti::CommunicatorImpl::of(communicator).keep(memory);
}

tuttiResult_t tuttiGetVersion(int* version) {
  return guarded([&] { result(version, "version") = TUTTI_VERSION_CODE; });
}

const char* tuttiGetErrorString(tuttiResult_t result) {
  return result == tuttiSuccess ? "success"
                                : tutti::to_string(static_cast<tutti::ErrorKind>(result)).data();
}

const char* tuttiGetLastError(tuttiComm_t comm) {
  const bool none = *remembered() == '\0';
  if (none && comm != nullptr && comm->is_whole())
    guarded([&] {
      if (const auto failure = comm->communicator.failure()) remember(failure->what());
    });
  return remembered();
}

tuttiResult_t tuttiCommInitFromEnv(tuttiComm_t* comm, const tuttiConfig_t* config) {
  return make_comm(comm, [&] { return handle(Communicator::from_env(read_config(config))); });
}

tuttiResult_t tuttiCommInitWithStore(tuttiComm_t* comm, const tuttiStore_t* store, int rank,
                                     int ranks, const tuttiConfig_t* config) {
  return make_comm(comm, [&] {
    return handle(Communicator::create(wrap(store), rank, ranks, read_config(config)));
  });
}

tuttiResult_t tuttiCommInitInProcess(tuttiComm_t* comms, int ranks, const tuttiConfig_t* config) {
  return guarded([&] {
    result(comms, "comms");
    std::vector<std::unique_ptr<tuttiComm>> made;
    for (Communicator& comm : Communicator::in_process(ranks, read_config(config)))
      made.push_back(std::make_unique<tuttiComm>(std::move(comm)));
    for (auto& comm : made) *comms++ = comm.release();
  });
}

tuttiResult_t tuttiCommDestroy(tuttiComm_t comm) {
  return guarded([&] {
    if (comm == nullptr) return;
    if (const int left = checked(comm, "comm").persistent_calls; left > 0)
      throw tutti::Error(tutti::ErrorKind::usage,
                         std::to_string(left) + " persistent calls of comm are not freed");
    tutti::CommunicatorImpl::of(comm->communicator).begin_destruction();
    delete comm;
  });
}

tuttiResult_t tuttiCommAbort(tuttiComm_t comm, const char* why) {
  return guarded([&] { communicator(comm).abort(why == nullptr ? "" : why); });
}

void tuttiInterruptWith(int (*interrupted)()) {
  interrupting.interruptible.reset();
  interrupting.function = interrupted;
  if (interrupted != nullptr)
    interrupting.interruptible.emplace([] { return interrupting.function() != 0; });
}

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* part) {
  return make_comm(part, [&] { return handle(communicator(comm).split(color, key)); });
}

tuttiResult_t tuttiCommDup(tuttiComm_t comm, tuttiComm_t* dup) {
  return make_comm(dup, [&] { return handle(communicator(comm).dup()); });
}

tuttiResult_t tuttiCommSubgroup(tuttiComm_t comm, const int* ranks, int count, tuttiComm_t* part) {
  return make_comm(
      part, [&] { return handle(communicator(comm).subgroup(list("subgroup", ranks, count))); });
}

tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int64_t patience_ms, tuttiComm_t* rest) {
  return tuttiCommShrinkToLeast(comm, patience_ms, 1, rest);
}

tuttiResult_t tuttiCommShrinkToLeast(tuttiComm_t comm, int64_t patience_ms, int least,
                                     tuttiComm_t* rest) {
  return make_comm(rest,
                   [&] { return handle(communicator(comm).shrink(patience(patience_ms), least)); });
}

tuttiResult_t tuttiCommShrinkWithout(tuttiComm_t comm, const int* ranks, int count,
                                     int64_t patience_ms, tuttiComm_t* rest) {
  return make_comm(rest, [&] {
    return handle(
        communicator(comm).shrink_without(list("shrink", ranks, count), patience(patience_ms)));
  });
}

tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int newcomers, int64_t patience_ms,
                            tuttiComm_t* grown) {
  return make_comm(
      grown, [&] { return handle(communicator(comm).grow(newcomers, patience(patience_ms))); });
}

tuttiResult_t tuttiCommJoin(tuttiComm_t* comm, const tuttiConfig_t* config) {
  return make_comm(comm, [&] { return handle(Communicator::join(read_config(config))); });
}

tuttiResult_t tuttiCommJoinWithStore(tuttiComm_t* comm, const tuttiStore_t* store,
                                     const tuttiConfig_t* config) {
  return make_comm(comm,
                   [&] { return handle(Communicator::join(wrap(store), read_config(config))); });
}

tuttiResult_t tuttiCommAgree(tuttiComm_t comm, uint64_t* flags, int64_t patience_ms, int* present) {
  return guarded([&] {
    Communicator& ranks = communicator(comm);
    std::uint64_t& agreed = result(flags, "flags");
    const tutti::Agreement agreement = ranks.agree(agreed, patience(patience_ms));
    agreed = agreement.flags;
    if (present == nullptr) return;
    std::fill_n(present, ranks.size(), 1);
    for (const int rank : agreement.absent) present[rank] = 0;
  });
}

tuttiResult_t tuttiCommRank(tuttiComm_t comm, int* rank) {
  return guarded([&] { result(rank, "rank") = communicator(comm).rank(); });
}

tuttiResult_t tuttiCommSize(tuttiComm_t comm, int* ranks) {
  return guarded([&] { result(ranks, "ranks") = communicator(comm).size(); });
}

tuttiResult_t tuttiCommMemory(tuttiComm_t comm, size_t* bytes) {
  return guarded([&] { result(bytes, "bytes") = communicator(comm).memory_bytes(); });
}

tuttiResult_t tuttiMemAlloc(tuttiComm_t comm, size_t bytes, void** data) {
  return guarded([&] {
    result(data, "data") = nullptr;
    tutti::Buffer buffer = tutti::Buffer::allocate(communicator(comm), bytes);
    *data = buffer.data();
    if (bytes > 0) comm->memory->buffers.emplace(*data, std::move(buffer));
  });
}

tuttiResult_t tuttiMemFree(tuttiComm_t comm, void* data) {
  return guarded([&] {
    if (checked(comm, "comm").memory->buffers.erase(data) == 0 && data != nullptr)
      throw tutti::Error(tutti::ErrorKind::usage,
                         "data is not what tuttiMemAlloc gave for comm, or has been freed");
  });
}

tuttiResult_t tuttiMemRegister(tuttiComm_t comm, void* data, size_t bytes) {
  return guarded([&] {
    auto registered = tutti::RegisteredMemory::of(communicator(comm), data, bytes);
    if (!comm->memory->registered.emplace(data, std::move(registered)).second)
      throw tutti::Error(tutti::ErrorKind::usage, "data has been registered with comm already");
  });
}

tuttiResult_t tuttiMemDeregister(tuttiComm_t comm, void* data) {
  return guarded([&] {
    if (checked(comm, "comm").memory->registered.erase(data) == 0)
      throw tutti::Error(
          tutti::ErrorKind::usage,
          "data is not what tuttiMemRegister was given for comm, or was deregistered");
  });
}

tuttiResult_t tuttiCommStartup(tuttiComm_t comm, int index, const char** name,
                               int64_t* nanoseconds) {
  return guarded([&] {
    const auto& phases = communicator(comm).startup();
    if (index < 0)
      throw tutti::Error(tutti::ErrorKind::usage,
                         "a start-up phase's index is " + std::to_string(index));
    const bool none = static_cast<std::size_t>(index) >= phases.size();
    result(name, "name") = none ? nullptr : phases[static_cast<std::size_t>(index)].name.c_str();
    result(nanoseconds, "nanoseconds") =
        none ? 0 : phases[static_cast<std::size_t>(index)].duration.count();
  });
}

tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* failure) {
  return guarded([&] {
    const auto error = communicator(comm).failure();
    result(failure, "failure") = error ? static_cast<tuttiResult_t>(error->kind()) : tuttiSuccess;
  });
}
