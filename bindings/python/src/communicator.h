// tutti::Communicator, Work, Group and Persistent for Python.
#pragma once

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include <tutti/tutti.hpp>

#include "array.h"
#include "exceptions.h"
#include "interpreter.h"
#include "streams.h"

namespace tutti::python {

namespace nb = nanobind;

/// Returns whether Python has an exception to raise in this thread (Ctrl-C), as
/// tutti::Interruptible asks. The interpreter's lock must not be held.
bool interrupted();

using Arrays = std::vector<Array>;

/// The message that a receive received, as Python sees it: (source, tag, count).
using Got = std::tuple<int, int, std::size_t>;
inline std::optional<Got> got(const Received* received) {
  if (received == nullptr) return std::nullopt;
  return Got{received->source, received->tag, received->count};
}

/// Holds what a call uses until the call is done.
struct Uses {
  Arrays arrays;
  std::shared_ptr<Received> received;
  nb::object reduction;  ///< A Reduction, or invalid.
};

/// Throws `usage` in a function that reduces: the call that runs it waits for it.
void refuse_in_reduction();

/// Holds what a call under way uses, which the first to see that it has ended well lets go: after a
/// failure it stays in use until the communicator is closed.
using Kept = std::shared_ptr<std::shared_ptr<const Uses>>;

class Work {
 public:
  Work(tutti::Work work, std::shared_ptr<Received> received, Kept kept = nullptr)
      : work_(std::move(work)), received_(std::move(received)), kept_(std::move(kept)) {}

  /// The interpreter's lock must be held; it is released while this waits. Checks for Ctrl-C ten
  /// times a second.
  void wait(std::optional<double> seconds);
  bool done();
  std::optional<Got> received() const { return got(work_.done() ? received_.get() : nullptr); }
  /// Calls `callback()` once when the call has ended, in any thread.
  void then(nb::object callback);

 private:
  void let_go();

  tutti::Work work_;
  std::shared_ptr<Received> received_;
  Kept kept_;  // null where the memory is kept otherwise
};

/// A group of calls, with the memory that they use.
struct Group {
  tutti::Group calls;
  std::vector<std::shared_ptr<const Uses>> uses;
};

/// The form in which an operation is called.
enum class Form { blocking, async, persistent };
template <Form kForm>
using As = std::integral_constant<Form, kForm>;

/// Throws `usage` for values that no clock can count. Timeouts that are merely too long are
/// rejected where they are used.
inline std::chrono::milliseconds milliseconds(double seconds) {
  if (!(std::abs(seconds) < 1e9))
    throw Error(ErrorKind::usage, std::to_string(seconds) + " seconds are no timeout");
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// The options of one call as Python passes them.
struct Options {
  std::optional<double> timeout;
  std::string algorithm;
  Group* group = nullptr;
  Stream stream = nullptr;  ///< The one that the program names, if any.
  std::string accumulate = {};
  const void* premultiplier = nullptr;
  std::shared_ptr<Received> received = {};
  const UserReduction* reduction = nullptr;
  nb::object kept_reduction = {};  ///< The object that has it.
};

using Counts = std::vector<std::size_t>;

class Persistent;

class Communicator {
 public:
  explicit Communicator(tutti::Communicator communicator)
      : communicator_(std::make_unique<tutti::Communicator>(std::move(communicator))) {}
  Communicator(Communicator&&) = default;
  ~Communicator();

  /// Waits for asynchronous calls that are under way, and leaves the peers. Later calls are
  /// `usage`, and so is this one while a thread is in a call: in another thread, or in a handler of
  /// a signal.
  void close();
  /// Does the same at the end of a block that an exception has left, but aborts calls that are
  /// pending, for which others need this rank.
  void close_after_failure();
  /// Throws `usage` if it is closed, and in a function that reduces.
  tutti::Communicator& get() const;
  /// Does the same for what a function that reduces may ask, too.
  tutti::Communicator& open() const;

  /// Marks a thread as being in a call, in which it releases the interpreter's lock. The lock must
  /// be held where an object of this class is made and where it ends.
  class InCall {
   public:
    explicit InCall(const Communicator& communicator)
        : its_(communicator.get()), count_(communicator.in_calls_) {
      ++count_;
    }
    ~InCall() { --count_; }
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;
    tutti::Communicator& communicator() const noexcept { return its_; }

   private:
    tutti::Communicator& its_;
    int& count_;
  };

  /// Makes a call in the form kForm. `call(communicator, options, form)` returns what tutti's
  /// function of that form returns, and runs without the interpreter's lock. If the call outlasts
  /// this function, `arrays`, which it uses, are kept until it is done.
  template <Form kForm, typename Call, typename... Each>
  auto make(const Options& options, Call&& call, Each&... arrays);
  /// Keeps the memory that a call uses until the call is done.
  Work keep(tutti::Work work, std::shared_ptr<const Uses> uses);
  /// Keeps the function of an algorithm, which tutti's communicator refers to weakly.
  void keep_planner(nb::object planner) { planners_.push_back(std::move(planner)); }
  /// Keeps the functions of the communicator of which this is a part.
  void keep_planners_of(const Communicator& whole) { planners_ = whole.planners_; }

  /// For Python's garbage collector, which finds references in circles.
  int traverse(visitproc visit, void* arg) const {
    for (const nb::object& planner : planners_) Py_VISIT(planner.ptr());
    return 0;
  }
  void clear() { planners_.clear(); }

 private:
  friend class Persistent;
  void end() noexcept;
  void abort_pending(const char* why);

  struct Pending {
    tutti::Work work;
    Kept kept;
  };
  void forget_ended();

  std::unique_ptr<tutti::Communicator> communicator_;  // null once it is closed
  std::vector<Pending> pending_;                       // protected by the interpreter's lock
  std::size_t look_at_ = 2;           // number of them at which those that have ended are forgotten
  std::vector<nb::object> planners_;  // protected by the interpreter's lock
  mutable int in_calls_ = 0;          // protected by the interpreter's lock
  std::vector<std::weak_ptr<std::optional<tutti::Persistent>>> persistent_;  // close() ends them
};

/// Returns the setting `select` for a function of Python, to which it refers weakly: the
/// communicators keep it. Throws `usage` where it is no function.
Select select_of(const nb::object& function);

/// A persistent call. It keeps its communicator alive, which ends the call when it is closed.
class Persistent {
 public:
  Persistent(Communicator& communicator, tutti::Persistent call, std::shared_ptr<const Uses> uses);

  void run();
  Work start();
  void add_to(Group& group);
  /// The result of the last run.
  std::optional<Got> received() const { return got(uses_->received.get()); }

  /// For Python's garbage collector. A circle ends at the communicator, which forgets its
  /// functions.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(owner_.ptr());
    return 0;
  }
  void clear() noexcept {}

 private:
  tutti::Persistent& call() const;

  const nb::object owner_;  // keeps the communicator alive
  Communicator& communicator_;
  const std::shared_ptr<std::optional<tutti::Persistent>> call_;  // empty once closed
  const std::shared_ptr<const Uses> uses_;
};

void bind_communicator(nb::module_& module);
void bind_operations(nb::class_<Communicator>& type);
void bind_algorithms(nb::class_<Communicator>& type);
void bind_buffer(nb::module_& module);
void bind_schedules(nb::module_& module);
void bind_prices(nb::module_& module);

/// Runs `body` without the interpreter's lock; Ctrl-C ends the calls that it makes. Where it ends
/// with an error, an interrupt comes first: the one that has ended it and waits in `entry`, or that
/// of a signal that is still pending. Ctrl-C interrupts all ranks of a job, and what a rank hears
/// of another's interrupt is no error of its own. Where `body` has ended well, the caller raises
/// what waits in `entry`.
template <typename Body>
auto unlocked(Entry& entry, Body&& body) {
  try {
    const Unlocked released;
    const Interruptible interruptible(interrupted);
    return body();
  } catch (const Error&) {
    entry.raise();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    throw;
  }
}

/// Does the same for a body whose result is dropped where an interrupt waits.
template <typename Body>
auto unlocked(Body&& body) {
  Entry entry;
  if constexpr (std::is_void_v<decltype(body())>) {
    unlocked(entry, body);
    entry.raise();
  } else {
    auto result = unlocked(entry, body);
    entry.raise();
    return result;
  }
}

/// Throws `usage` for a text that names no accumulation; an empty one is that of the settings.
inline Accumulate accumulate_of(const std::string& name) {
  if (name.empty()) return Accumulate::as_configured;
  if (name == "step") return Accumulate::step;
  if (name == "f32") return Accumulate::f32;
  if (name == "reproducible") return Accumulate::reproducible;
  throw Error(ErrorKind::usage,
              "accumulate: it must be step, f32 or reproducible, and not \"" + name + '"');
}

template <Form kForm, typename Call, typename... Each>
auto Communicator::make(const Options& options, Call&& call, Each&... arrays) {
  CallOptions told;
  if (options.timeout) told.timeout = milliseconds(*options.timeout);
  told.algorithm = options.algorithm;
  told.accumulate = accumulate_of(options.accumulate);
  if (options.group != nullptr) told.group = &options.group->calls;
  if (kForm == Form::persistent && options.group != nullptr)
    throw Error(ErrorKind::usage, "a persistent call joins a group by add_to(group)");
  told.premultiplier = options.premultiplier;
  told.received = options.received.get();
  told.reduction = options.reduction;
  told.stream = stream_for(options.stream, {&arrays...});
  const InCall in_call(*this);
  const auto made = [&] { return call(in_call.communicator(), told, As<kForm>()); };
  const auto uses = [&] {
    Uses used{{}, options.received, options.kept_reduction};
    (used.arrays.push_back(std::move(arrays)), ...);
    return std::make_shared<const Uses>(std::move(used));
  };
  // An interrupt is raised only when the memory of the call is kept, since the call may be under
  // way.
  Entry entry;
  if constexpr (kForm == Form::blocking) {
    unlocked(entry, made);
    if (options.group != nullptr) options.group->uses.push_back(uses());
    entry.raise();
  } else if constexpr (kForm == Form::async) {
    tutti::Work work = unlocked(entry, made);
    if (options.group != nullptr) options.group->uses.push_back(uses());
    Work kept = options.group == nullptr ? keep(std::move(work), uses())
                                         : Work(std::move(work), options.received);
    entry.raise();
    return kept;
  } else {
    tutti::Persistent call_of_tutti = unlocked(entry, made);
    entry.raise();
    return Persistent(*this, std::move(call_of_tutti), uses());
  }
}

}  // namespace tutti::python
