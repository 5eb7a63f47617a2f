#include "communicator.h"
#include "collected.h"
#include "store.h"

#include <algorithm>
#include <cassert>
#include <chrono>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace tutti::python {
namespace {

constexpr std::chrono::milliseconds kBetweenSignals{100};

// The configuration of a communicator that is to be made.
struct Settings {
  Config config;
  nb::object select;  // the function that config.select calls, if any

  // Returns the communicator, which keeps that function from now on.
  Communicator keeper(Communicator made) const {
    if (select.is_valid()) made.keep_planner(select);
    return made;
  }
};

// Returns the configuration of the environment, changed by the two deadlines, which are in seconds,
// and by any setting that the caller names. An argument that is None changes nothing.
Settings settings_of(std::optional<double> timeout, std::optional<double> startup_timeout,
                     const nb::kwargs& settings) {
  Settings made{Config::from_env(), {}};
  Config& config = made.config;
  if (timeout) config.timeout = milliseconds(*timeout);
  if (startup_timeout) config.startup_timeout = milliseconds(*startup_timeout);
  for (const auto [key, value] : settings) {
    const auto name = nb::cast<std::string>(key);
    if (value.is_none()) continue;
    if (name == "select") {
      made.select = nb::borrow(value);
      config.select = select_of(made.select);
    } else if (PyBool_Check(value.ptr())) {
      config.set(name, value.is(Py_True) ? "yes" : "no");
    } else {
      config.set(name, nb::str(value).c_str());
    }
  }
  return made;
}

Communicator create(nb::object store, int rank, int size, std::optional<double> timeout,
                    std::optional<double> startup_timeout, const nb::kwargs& settings) {
  const Settings its = settings_of(timeout, startup_timeout, settings);
  const auto shared_store = shared(Store(std::move(store)));
  return its.keeper(unlocked([&] {
    return Communicator(tutti::Communicator::create(shared_store, rank, size, its.config));
  }));
}

Communicator from_env(std::optional<double> timeout, std::optional<double> startup_timeout,
                      const nb::kwargs& settings) {
  const Settings its = settings_of(timeout, startup_timeout, settings);
  return its.keeper(
      unlocked([&] { return Communicator(tutti::Communicator::from_env(its.config)); }));
}

std::vector<Communicator> in_process(int size, std::optional<double> timeout,
                                     const nb::kwargs& settings) {
  const Settings its = settings_of(timeout, {}, settings);
  auto ranks = unlocked([&] { return tutti::Communicator::in_process(size, its.config); });
  std::vector<Communicator> made;
  for (auto& rank : ranks) made.push_back(its.keeper(Communicator(std::move(rank))));
  return made;
}

Communicator made_of(const Communicator& whole, tutti::Communicator part) {
  Communicator made(std::move(part));
  made.keep_planners_of(whole);
  return made;
}

template <typename Make>
std::optional<Communicator> part_of(const Communicator& whole, Make&& make) {
  const Communicator::InCall in_call(whole);
  auto part = unlocked([&] { return make(in_call.communicator()); });
  if (!part) return std::nullopt;
  return made_of(whole, std::move(*part));
}

std::optional<Communicator> split(const Communicator& self, int color, int key) {
  return part_of(self, [&](tutti::Communicator& whole) { return whole.split(color, key); });
}

std::optional<Communicator> subgroup(const Communicator& self, const std::vector<int>& ranks) {
  return part_of(self, [&](tutti::Communicator& whole) { return whole.subgroup(ranks); });
}

// 0 stands for the usual patience, as in C.
std::chrono::milliseconds patience_of(double seconds) {
  return seconds == 0 ? std::chrono::seconds(10) : milliseconds(seconds);
}

Communicator shrink(const Communicator& self, double patience, int least) {
  const Communicator::InCall in_call(self);
  return made_of(
      self, unlocked([&] { return in_call.communicator().shrink(patience_of(patience), least); }));
}

Communicator shrink_without(const Communicator& self, const std::vector<int>& ranks,
                            double patience) {
  const Communicator::InCall in_call(self);
  return made_of(self, unlocked([&] {
                   return in_call.communicator().shrink_without(ranks, patience_of(patience));
                 }));
}

Communicator grow(const Communicator& self, int newcomers, double patience) {
  const Communicator::InCall in_call(self);
  return made_of(self, unlocked([&] {
                   return in_call.communicator().grow(newcomers, patience_of(patience));
                 }));
}

std::pair<std::uint64_t, std::vector<int>> agree(const Communicator& self, std::uint64_t flags,
                                                 double patience) {
  const Communicator::InCall in_call(self);
  tutti::Agreement agreed =
      unlocked([&] { return in_call.communicator().agree(flags, patience_of(patience)); });
  return {agreed.flags, std::move(agreed.absent)};
}

Communicator join(nb::object store, std::optional<double> timeout,
                  std::optional<double> startup_timeout, const nb::kwargs& settings) {
  const Settings its = settings_of(timeout, startup_timeout, settings);
  std::shared_ptr<Store> shared_store;
  if (!store.is_none()) shared_store = shared(Store(std::move(store)));
  return its.keeper(unlocked([&] {
    return Communicator(shared_store != nullptr
                            ? tutti::Communicator::join(shared_store, its.config)
                            : tutti::Communicator::join(its.config));
  }));
}

Communicator dup(const Communicator& self) { return std::move(*split(self, 0, self.get().rank())); }

Work end_async(Group& group) {
  const auto uses = shared(std::exchange(group.uses, {}));
  tutti::Work work;
  {
    const Unlocked unlocked;
    work = group.calls.end_async();
    work.then([uses](const Error*) {});  // keeps the memory until the group has ended
  }
  return {std::move(work), nullptr};
}

// Returns whether the call has ended well.
bool has_succeeded(tutti::Work& work) noexcept {
  try {
    return work.done() && work.wait_for(std::chrono::milliseconds{0});
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool interrupted() {
  const Locked lock;
  if (!lock) return false;
  if (Entry::has_kept()) return true;  // An object of Python, such as a store, has met it.
  if (PyErr_CheckSignals() == 0) return false;
  Entry::keep(nb::python_error());
  return true;
}

bool Work::done() {
  refuse_in_reduction();
  Entry entry;
  if (has_succeeded(work_)) let_go();
  const bool is_done = work_.done();
  entry.raise();
  return is_done;
}

void Work::let_go() {
  if (kept_ != nullptr) kept_->reset();
}

void Work::wait(std::optional<double> seconds) {
  using Clock = std::chrono::steady_clock;
  refuse_in_reduction();
  Entry entry;
  const auto limit = seconds ? Clock::now() + milliseconds(*seconds) : Clock::time_point::max();
  for (;;) {
    const auto rest = seconds ? std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now())
                              : kBetweenSignals;
    const auto slice = std::clamp(rest, std::chrono::milliseconds{0}, kBetweenSignals);
    bool has_ended = false;
    try {
      const Unlocked unlocked;
      has_ended = work_.wait_for(slice);
    } catch (const Error&) {
      entry.raise();
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      throw;
    }
    if (has_ended) let_go();
    entry.raise();
    if (has_ended) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (Clock::now() >= limit)
      throw Error(ErrorKind::timeout,
                  "the call had not ended within the time that was given to wait for it; it goes "
                  "on, and can be waited for again");
  }
}

void Work::then(nb::object callback) {
  const auto held = shared(std::move(callback));
  const Unlocked unlocked;
  work_.then([held](const Error*) {
    const Locked lock;
    if (!lock) return;
    try {
      (*held)();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a callback of tutti.Work");
    }
  });
}

// Ctrl-C while it waits for calls is raised later, since nothing can be raised here.
Communicator::~Communicator() {
  if (communicator_ == nullptr) return;
  Entry entry;
  try {
    if (ends_after_exception())
      abort_pending("an exception has ended its program while calls were pending");
  } catch (const std::exception&) {  // There is no memory: the calls are waited for.
  }
  {
    const Interruptible interruptible(interrupted);
    end();
  }
  if (Entry::has_kept()) PyErr_SetInterrupt();
}

void Communicator::close() {
  if (in_calls_ > 0)
    throw Error(ErrorKind::usage,
                "close: a thread is in a call of this communicator; let the call end first, or end "
                "it with abort()");
  refuse_in_reduction();
  Entry entry;
  {
    const Interruptible interruptible(interrupted);
    end();
  }
  entry.raise();
}

void Communicator::close_after_failure() {
  Entry entry;
  abort_pending("an exception has left its `with` block while calls were pending");
  close();
  entry.raise();
}

void Communicator::abort_pending(const char* why) {
  const bool any = std::any_of(pending_.begin(), pending_.end(),
                               [](const Pending& each) { return !each.work.done(); });
  if (any && communicator_ != nullptr) communicator_->abort(why);
}

void Communicator::end() noexcept {
  for (const auto& each : persistent_)
    if (const auto call = each.lock()) call->reset();
  persistent_.clear();
  // Another thread, a callback or the end of an array may close it meanwhile, and finds nothing
  // left. The arrays of calls, and functions that plan, live until the calls have ended.
  const std::vector<Pending> kept = std::exchange(pending_, {});
  const std::vector<nb::object> planners = std::exchange(planners_, {});
  std::unique_ptr<tutti::Communicator> last = std::move(communicator_);
  if (last != nullptr) {
    const Unlocked unlocked;
    last.reset();
  }
}

tutti::Communicator& Communicator::get() const {
  refuse_in_reduction();
  return open();
}

tutti::Communicator& Communicator::open() const {
  if (communicator_ == nullptr) throw Error(ErrorKind::usage, "the communicator has been closed");
  return *communicator_;
}

Work Communicator::keep(tutti::Work work, std::shared_ptr<const Uses> uses) {
  assert(uses != nullptr);
  if (pending_.size() >= look_at_) forget_ended();
  const std::shared_ptr<Received> received = uses->received;
  const auto kept = std::make_shared<std::shared_ptr<const Uses>>(std::move(uses));
  pending_.push_back({work, kept});
  return {std::move(work), received, kept};
}

// Frees the arrays of those calls last, since that may run code of the program, which may call
// again.
void Communicator::forget_ended() {
  const auto ended = std::stable_partition(pending_.begin(), pending_.end(),
                                           [](Pending& each) { return !has_succeeded(each.work); });
  const std::vector<Pending> gone(std::make_move_iterator(ended),
                                  std::make_move_iterator(pending_.end()));
  pending_.erase(ended, pending_.end());
  look_at_ = std::max<std::size_t>(2, 2 * pending_.size());
}

Persistent::Persistent(Communicator& communicator, tutti::Persistent call,
                       std::shared_ptr<const Uses> uses)
    : owner_(nb::find(communicator)),
      communicator_(communicator),
      call_(std::make_shared<std::optional<tutti::Persistent>>(std::move(call))),
      uses_(std::move(uses)) {
  assert(uses_ != nullptr);
  std::erase_if(communicator.persistent_, [](const auto& each) { return each.expired(); });
  communicator.persistent_.emplace_back(call_);
}

tutti::Persistent& Persistent::call() const {
  communicator_.get();
  assert(call_->has_value() && "close() ends the calls of a communicator");
  return **call_;
}

void Persistent::run() {
  const Communicator::InCall in_call(communicator_);
  unlocked([&call = call()] { call.run(); });
}

Work Persistent::start() {
  const Communicator::InCall in_call(communicator_);
  Entry entry;
  Work work = communicator_.keep(unlocked(entry, [&call = call()] { return call.start(); }), uses_);
  entry.raise();
  return work;
}

void Persistent::add_to(Group& group) {
  call().add_to(group.calls);
  group.uses.push_back(uses_);
}

namespace {

const nb::sig kExit("def __exit__(self, *raised: object) -> None");

// Returns whether a block has been left by an exception, from the arguments of __exit__.
bool has_failed(const nb::args& raised) { return raised.size() > 0 && !raised[0].is_none(); }

void bind_calls(nb::module_& module) {
  nb::class_<Work>(module, "Work")
      .def("wait", &Work::wait, nb::arg("timeout") = nb::none())
      .def("done", &Work::done)
      .def(
          "__await__",
          [](nb::handle self) {
            return nb::module_::import_("tutti._await").attr("until_done")(self);
          },
          nb::sig("def __await__(self) -> collections.abc.Generator[object, None, tuple[int, int, "
                  "int] | None]"))
      .def("_then", &Work::then, nb::arg("callback"))
      .def_prop_ro("received", &Work::received);

  nb::class_<Group>(module, "Group")
      .def(nb::init<>())
      .def("end", [](Group& self) { end_async(self).wait(std::nullopt); })
      .def("end_async", &end_async)
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Group"))
      .def(
          "__exit__",
          [](Group& self, nb::args raised) {
            if (!has_failed(raised)) end_async(self).wait(std::nullopt);
          },
          kExit);

  nb::class_<Persistent>(module, "Persistent", nb::type_slots(collected<Persistent>))
      .def("run", &Persistent::run)
      .def("start", &Persistent::start)
      .def("add_to", &Persistent::add_to, nb::arg("group"))
      .def_prop_ro("received", &Persistent::received);
}

}  // namespace

void bind_communicator(nb::module_& module) {
  bind_calls(module);
  nb::class_<Communicator> type(module, "Communicator", nb::type_slots(collected<Communicator>));
  type.def_static("from_env", &from_env, nb::kw_only(), nb::arg("timeout") = nb::none(),
                  nb::arg("startup_timeout") = nb::none(), nb::arg("settings"))
      .def_static("create", &create, nb::arg("store"), nb::arg("rank"), nb::arg("size"),
                  nb::kw_only(), nb::arg("timeout") = nb::none(),
                  nb::arg("startup_timeout") = nb::none(), nb::arg("settings"))
      .def_static("join", &join, nb::arg("store") = nb::none(), nb::kw_only(),
                  nb::arg("timeout") = nb::none(), nb::arg("startup_timeout") = nb::none(),
                  nb::arg("settings"))
      .def_static("in_process", &in_process, nb::arg("size"), nb::kw_only(),
                  nb::arg("timeout") = nb::none(), nb::arg("settings"))
      .def_prop_ro("rank", [](const Communicator& self) { return self.open().rank(); })
      .def_prop_ro("size", [](const Communicator& self) { return self.open().size(); })
      .def("split", &split, nb::arg("color"), nb::arg("key") = 0)
      .def("dup", &dup)
      .def("subgroup", &subgroup, nb::arg("ranks"))
      .def("shrink", &shrink, nb::arg("patience") = 10.0, nb::arg("least") = 1)
      .def("shrink_without", &shrink_without, nb::arg("ranks"), nb::arg("patience") = 10.0)
      .def("grow", &grow, nb::arg("newcomers"), nb::arg("patience") = 10.0)
      .def("agree", &agree, nb::arg("flags"), nb::arg("patience") = 10.0)
      .def(
          "abort", [](const Communicator& self, const std::string& why) { self.open().abort(why); },
          nb::arg("why"))
      .def("memory_bytes", [](const Communicator& self) { return self.get().memory_bytes(); })
      .def("close", &Communicator::close)
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Communicator"))
      .def(
          "__exit__",
          [](Communicator& self, nb::args raised) {
            has_failed(raised) ? self.close_after_failure() : self.close();
          },
          kExit);
  bind_operations(type);
  bind_algorithms(type);
}

}  // namespace tutti::python
