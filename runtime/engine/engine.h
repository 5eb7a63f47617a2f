// The seam between a communicator and what moves the bytes of its collectives.
//
// A communicator plans a call and compiles it to a program, which is plain data. An engine binds
// programs to memory, channels and kernels, and executes one call at a time. The host engine uses
// the cores of this machine; in the engine of a device, a kernel would read the program. A
// communicator does not know which engine it has.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tutti/reduction.hpp>

#include "collectives/schedule/program.h"
#include "common/wire.h"
#include "runtime/diagnosis/recorder.h"
#include "transport/channel.h"
#include "transport/memory.h"

namespace tutti {

/// Holds arguments that few calls have.
struct CallExtras {
  const void* premultiplier = nullptr;       ///< One element, in a premultiplied sum.
  const UserReduction* reduction = nullptr;  ///< A program's own reduction.
};

/// Holds the buffers of a call from which messages may be sent zero-copy.
struct ZeroCopyBuffers {
  Memory input, output;  ///< If it has no address, messages from this buffer are copied.
  bool in_place = false;
  bool ordinary = false;       ///< Channels that are no rings send from ordinary memory, too.
  bool kernel_copies = false;  ///< The kernel may copy messages of rings where that is faster.
  /// Shorter messages are copied, because a zero-copy message costs one more transfer between the
  /// cores.
  std::size_t least_bytes = 4096;

  const Memory& of(Place place) const { return place == Place::input ? input : output; }
  /// Whether messages are received in the buffers themselves by channels that are no rings.
  bool expects() const noexcept {
    return ordinary || input.kind == MemoryKind::shared || output.kind == MemoryKind::shared;
  }
};

struct DeviceCall;

/// Holds the buffers of one call, which are null where the call has none.
struct CallBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;        ///< Set by the engine.
  const BlockTable* blocks = nullptr;  ///< For a variable program; outlives the execution.
  /// Read by start(); the objects to which they point outlive the execution.
  const CallExtras* extras = nullptr;
  std::size_t result_bytes = 0;  ///< The number of bytes that are written to the output.
  DeviceCall* device = nullptr;  ///< For DeviceEngine: the call, which launch() has begun.
  /// The last member: otherwise GCC 12 clears the whole record when one is made, which takes 3 ns.
  std::optional<ZeroCopyBuffers> zero_copy = std::nullopt;
};

/// Thrown by Engine::advance() when the function of a program's own reduction has thrown.
struct ReductionThrew {
  std::string what;
};

/// Thrown by Engine::advance() when a message is not the one that this operation expects.
struct MismatchedMessage {
  int peer;
  Header expected;
  Header found;
};

/// A program that an engine has bound. The engine that made it derives from this its own record.
struct BoundProgram {
  explicit BoundProgram(Program compiled)
      : program(std::move(compiled)), entry(StatusPage::entry_of(program.call)) {}
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const Program program;
  const StatusPage::Entry entry;  ///< What the status page shows of its calls, unless they vary.

 protected:
  ~BoundProgram() = default;
};

/// Executes the collectives of one communicator, one at a time. One thread at a time (the owner of
/// the communicator's engine) uses it.
class Engine {
 public:
  /// The arguments outlive the engine.
  Engine(StatusPage& page, Recorder& recorder) : recorder_(recorder), page_(page) {}
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Binds the programs of a call, one for each of its stripes. Throws what the creation of
  /// channels throws (`unavailable`).
  virtual std::shared_ptr<BoundProgram> bind(std::vector<Program> stripes) = 0;

  /// Starts a call under the next operation number, which the engine draws, and shows it to peers.
  /// The engine sets its own members of `buffers`; the memory to which they point outlives the
  /// call. If `in_threads` is true, worker threads may help, because the caller waits for the call.
  /// Then advances the call, `attempts` times at most, so that a short call is started and
  /// completed in one virtual call. Returns whether the call is done.
  virtual bool start(BoundProgram& bound, CallBuffers& buffers, bool in_threads, int attempts) = 0;

  /// Does what can be done now, `attempts` times at most, and returns whether the call is done,
  /// which peers can then see. Throws MismatchedMessage, ReductionThrew and what channels throw.
  virtual bool advance(int attempts) = 0;

  /// Stops a call that has failed: once this returns, no thread touches the call's buffers any
  /// more.
  virtual void stop() noexcept = 0;
  /// Records the error with which the call under way has ended; does nothing if there is none.
  void record_failure(ErrorKind kind) noexcept;
  /// For a forked child, which has none of the engine's threads: neither joins nor waits for them.
  virtual void forget_threads() noexcept = 0;

  /// Returns the lowest rank above `above` for whose message or free slot the call waits, or -1 if
  /// there is none.
  virtual int awaited(int above) const = 0;

  /// Returns the bytes of memory that it keeps between calls. Any thread may call it.
  virtual std::size_t memory_bytes() const noexcept = 0;

  // Describe the call under way, or the last one: its number, its signature, and the program's own
  // reduction that it uses, or null.
  std::uint64_t number() const noexcept { return next_number_ - 1; }
  virtual const CallSignature& call() const = 0;
  virtual const UserReduction* reduction() const = 0;

 protected:
  /// Draws the number of a call, and records the call on the status page, where peers can read it.
  std::uint64_t enter(const StatusPage::Entry& call) noexcept {
    page_.record(next_number_, call);
    return next_number_++;
  }
  /// Returns whether no call is under way and none has failed.
  bool idle() const noexcept {
    return page_.completed.load(std::memory_order_relaxed) == next_number_;
  }
  void complete() noexcept { page_.completed.store(next_number_, std::memory_order_release); }

  void record() noexcept;  ///< Records that the call has begun.
  /// Records that the call has ended, soon after it began. It is no part of the path of a call that
  /// repeats.
  void record_soon(const void* kind, const StatusPage::Entry& entry) noexcept;

  Recorder& recorder_;

 private:
  StatusPage& page_;
  std::uint64_t next_number_ = 0;
};

/// Makes the engine for calls whose buffers are in host memory. A worker thread of the engine calls
/// `worker_done` when it has ended its part of a call. `transport` and `recorder` outlive the
/// engine.
std::unique_ptr<Engine> make_host_engine(Transport& transport, Recorder& recorder,
                                         std::function<void()> worker_done);

}  // namespace tutti
