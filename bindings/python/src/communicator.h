// tutti::Communicator and Work for Python.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include <tutti/tutti.hpp>

#include "array.h"

namespace tutti::python {

namespace nb = nanobind;

/// Whether Python has an exception to raise in this thread (Ctrl-C): for CallOptions::interrupted.
/// The caller has let go of the interpreter's lock.
bool interrupted();

/// Arrays that a call uses, kept until it is done.
using Arrays = std::vector<Array>;

class Work {
 public:
  Work(tutti::Work work, std::shared_ptr<Received> received)
      : work_(std::move(work)), received_(std::move(received)) {}

  /// With the interpreter's lock, which it lets go of; looks for Ctrl-C ten times a second.
  void wait(std::optional<double> seconds);
  bool done() const { return work_.done(); }
  /// What a receive got: (source, tag, count).
  nb::object received() const;
  /// Calls `callback()` once when the call has ended, in whatever thread.
  void then(nb::object callback);

 private:
  tutti::Work work_;
  std::shared_ptr<Received> received_;
};

/// Calls that are made together, with what they use.
struct Group {
  tutti::Group calls;
  std::vector<Arrays> arrays;
  std::vector<std::shared_ptr<Received>> received;
};

/// Arguments of one call as Python gives them.
struct Options {
  std::optional<double> timeout;
  std::string algorithm;
  std::string accumulate;
  Group* group = nullptr;
};

using Counts = std::vector<std::size_t>;

class Communicator {
 public:
  explicit Communicator(tutti::Communicator communicator)
      : communicator_(std::make_unique<tutti::Communicator>(std::move(communicator))) {}
  Communicator(Communicator&&) = default;
  ~Communicator() { close(); }

  /// Waits for what is under way, and leaves. Further calls are `usage`.
  void close();
  tutti::Communicator& get() const;

  /// Makes a call in the form that is asked for. `call(options, async)` returns the handle of an
  /// asynchronous one; it runs without the interpreter's lock. The arrays live until the call ends.
  template <bool kAsync, typename Call>
  std::conditional_t<kAsync, Work, nb::object> make(const Options& options, Arrays arrays,
                                                    Call&& call,
                                                    const void* premultiplier = nullptr,
                                                    std::shared_ptr<Received> received = nullptr);

 private:
  struct Pending {
    tutti::Work work;
    Arrays arrays;
    std::shared_ptr<Received> received;
  };
  void forget_done();

  std::unique_ptr<tutti::Communicator> communicator_;  // null: closed
  std::deque<Pending> pending_;                        // under the interpreter's lock
};

void bind_communicator(nb::module_& module);
void bind_collectives(nb::class_<Communicator>& type);
void bind_transfers(nb::class_<Communicator>& type);

inline bool interrupted() {
  const nb::gil_scoped_acquire lock;
  return PyErr_CheckSignals() != 0;
}

template <bool kAsync, typename Call>
std::conditional_t<kAsync, Work, nb::object> Communicator::make(
    const Options& options, Arrays arrays, Call&& call, const void* premultiplier,
    std::shared_ptr<Received> received) {
  CallOptions told;
  if (options.timeout)
    told.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(*options.timeout * 1000));
  told.algorithm = options.algorithm;
  if (options.accumulate == "step") told.accumulate = Accumulate::step;
  if (options.accumulate == "f32") told.accumulate = Accumulate::f32;
  if (options.accumulate == "reproducible") told.accumulate = Accumulate::reproducible;
  if (options.group != nullptr) told.group = &options.group->calls;
  told.premultiplier = premultiplier;
  told.interrupted = interrupted;
  told.received = received.get();
  tutti::Communicator& comm = get();
  tutti::Work work;
  try {
    const nb::gil_scoped_release unlocked;
    work = call(comm, told, kAsync);
  } catch (const Error&) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    throw;
  }
  if (options.group != nullptr) {
    options.group->arrays.push_back(std::move(arrays));
    options.group->received.push_back(std::move(received));
  } else if (kAsync) {
    forget_done();
    pending_.push_back({work, std::move(arrays), received});
  }
  if constexpr (kAsync)
    return Work(std::move(work), std::move(received));
  else
    return nb::none();
}

}  // namespace tutti::python
