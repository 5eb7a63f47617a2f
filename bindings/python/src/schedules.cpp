// Binds the vocabulary of tutti/schedule.hpp, in which a program writes algorithms of its own.
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <tutti/schedule.hpp>

#include "communicator.h"
#include "exceptions.h"
#include "names.h"

namespace tutti::python {
namespace {

[[noreturn]] void refuse_schedule(const std::string& what) { throw Error(ErrorKind::usage, what); }

PlanRequest request_of(const std::string& operation, int rank, int ranks, int root,
                       std::vector<int> groups, std::vector<int> places) {
  const Collective what = collective_of(operation);
  if (ranks < 1) refuse_schedule("PlanRequest: ranks is at least 1");
  if (rank < 0 || rank >= ranks || root < 0 || root >= ranks)
    refuse_schedule("PlanRequest: rank and root are 0 to " + std::to_string(ranks - 1));
  if (!groups.empty() && groups.size() != static_cast<std::size_t>(ranks))
    refuse_schedule("PlanRequest: groups has a number for each rank, or none");
  if (!places.empty() && places.size() != static_cast<std::size_t>(ranks))
    refuse_schedule("PlanRequest: places has a number for each rank, or none");
  return {what, rank, ranks, root, std::move(groups), 0, std::move(places)};
}

/// Returns the numbers as one more argument of a call, or nothing if there are none.
std::string argument_text(const char* name, const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers)
    text.append(text.empty() ? "" : ", ").append(std::to_string(number));
  return text.empty() ? text : std::string(", ") + name + "=[" + text + "]";
}

/// A slice in Python: a chunk, or its number and how many follow.
using Chunks = std::variant<int, std::pair<int, int>>;
Slice slice_of(const Chunks& chunks) {
  if (const int* const chunk = std::get_if<int>(&chunks)) return *chunk;
  const auto& [first, count] = std::get<std::pair<int, int>>(chunks);
  return {first, count};
}

/// A builder that the lanes and steps which it has handed out share. It is empty once the schedule
/// is finished.
using Builder = std::optional<ScheduleBuilder>;
using SharedBuilder = std::shared_ptr<Builder>;

void check_unfinished(const SharedBuilder& builder) {
  if (!*builder) refuse_schedule("the schedule is finished: make another ScheduleBuilder");
}

class OwnStep {
 public:
  OwnStep(SharedBuilder builder, const StepHandle& step)
      : builder_(std::move(builder)), step_(step) {}

  OwnStep completes() const {
    check_unfinished(builder_);
    step_.completes();
    return *this;
  }
  OwnStep after(const OwnStep& other, int pieces_back) const {
    check_unfinished(builder_);
    step_.after(other.step_, pieces_back);
    return *this;
  }

 private:
  SharedBuilder builder_;
  StepHandle step_;
};

class OwnLane {
 public:
  OwnLane(SharedBuilder builder, const Verbs& verbs)
      : builder_(std::move(builder)), verbs_(verbs) {}

  /// Writes a step with `verb`, a member function of Verbs.
  template <typename... Parameters, typename... Arguments>
  OwnStep write(StepHandle (Verbs::*verb)(Parameters...) const, Arguments&&... arguments) const {
    check_unfinished(builder_);
    return {builder_, (verbs_.*verb)(std::forward<Arguments>(arguments)...)};
  }
  void starts_after(const OwnLane& other) const {
    check_unfinished(builder_);
    if (builder_ != other.builder_)
      refuse_schedule("a lane can start after a lane of its own schedule only");
    if (!other.verbs_.empty()) verbs_.starts_after(other.verbs_);
  }

 private:
  SharedBuilder builder_;
  Verbs verbs_;
};

class OwnBuilder {
 public:
  OwnBuilder(const PlanRequest& request, int chunks, int scratch_chunks)
      : builder_(std::make_shared<Builder>()) {
    builder_->emplace(request, chunks).scratch_chunks(scratch_chunks);
  }

  OwnLane lane(int receives_on, int sends_on) {
    check_unfinished(builder_);
    return {builder_, (*builder_)->lane(receives_on, sends_on)};
  }
  Schedule finish(int widest) {
    check_unfinished(builder_);
    Schedule schedule = std::move(**builder_).finish(widest);
    builder_->reset();
    return schedule;
  }

 private:
  SharedBuilder builder_;
};

/// Refers to a function that the communicators of Python keep, so that circles through it are
/// found.
class Planned {
 public:
  explicit Planned(const nb::object& function)
      : weak_(nb::steal(PyWeakref_NewRef(function.ptr(), nullptr))) {
    if (weak_.is_valid()) return;
    PyErr_Clear();  // The object takes no weak reference.
    strong_ = function;
  }

  /// Returns the function, or None if it is gone.
  nb::object function() const { return strong_.is_valid() ? strong_ : weak_(); }

 private:
  nb::object weak_, strong_;
};

/// Calls a function of Python that plans or selects, and returns its result, which in Python is a
/// Wanted, by the name `what`. What it throws is the text of the error.
template <typename Wanted, typename Result, typename Query>
Result called(const Planned& planned, const Query& query, const char* what) {
  const Locked lock;
  if (!lock) refuse_schedule("it is a function of Python, and Python has ended");
  std::string why;
  try {
    const nb::object function = planned.function();
    if (function.is_none()) throw std::runtime_error("its function is gone");
    const nb::object result = function(query);
    if (nb::isinstance<Wanted>(result)) return nb::cast<Result>(result);
    why = "it returned " + described(result) + ", which is no " + what;
  } catch (nb::python_error& error) {
    why = why_it_ended(error);
  }
  throw std::runtime_error(why);  // An Error would not name the algorithm.
}

void add_algorithm(Communicator& self, const std::string& name, nb::object planner) {
  if (PyCallable_Check(planner.ptr()) == 0)
    refuse_schedule("add_algorithm: " + described(planner) + " is no function");
  self.get().add_algorithm(name, [held = shared(Planned(planner))](const PlanRequest& request) {
    return called<Schedule, Schedule>(*held, request, "Schedule");
  });
  self.keep_planner(std::move(planner));
}

// Without a value of `in_place`, both must be proved.
Verdict verify_all(const std::vector<Schedule>& schedules, int window, int pieces, int operations,
                   std::optional<bool> in_place) {
  return unlocked([&] {
    const Verdict first = verify(schedules, {window, pieces, operations, in_place.value_or(false)});
    if (in_place || !first.ok) return first;
    return verify(schedules, {window, pieces, operations, true});
  });
}

/// The parameter of a verb as Python passes it.
template <typename Parameter>
struct Passed {
  using Type = std::remove_cvref_t<Parameter>;
  static Parameter unwrapped(Type& value) { return static_cast<Parameter>(std::move(value)); }
};
template <>
struct Passed<Slice> {
  using Type = Chunks;
  static Slice unwrapped(const Chunks& value) { return slice_of(value); }
};
template <>
struct Passed<const Peers&> {
  using Type = Peers;
  static const Peers& unwrapped(const Peers& value) { return value; }
};

/// Returns a function that writes a step with `verb`.
template <typename... Parameters>
auto writing(StepHandle (Verbs::*verb)(Parameters...) const) {
  return [verb](const OwnLane& lane, typename Passed<Parameters>::Type... passed) {
    return lane.write(verb, Passed<Parameters>::unwrapped(passed)...);
  };
}

void bind_lane(nb::module_& module) {
  nb::class_<OwnStep>(module, "Step", "A step that has been written, and can still be marked.")
      .def("completes", &OwnStep::completes,
           "Marks the result as final: what belongs to the end of a reduction, such as the "
           "division of avg, happens here.")
      .def("after", &OwnStep::after, nb::arg("other"), nb::arg("pieces_back") = 0,
           "Orders this step after one of another lane, of the same piece or of an earlier one.");

  const nb::arg chunk("chunk"), to("to"), peer("peer"), operands("operands");
  nb::class_<OwnLane>(module, "Lane",
                      "Steps that are done one after the other. A chunk is its number, or a pair: "
                      "the number of the first, and how many.")
      .def("copy", writing(&Verbs::copy), chunk)
      .def("send", writing(&Verbs::send), chunk, to)
      .def("send_output", writing(&Verbs::send_output), chunk, to)
      .def("copy_send", writing(&Verbs::copy_send), chunk, to)
      .def("receive", writing(&Verbs::receive), peer, chunk)
      .def("receive_send", writing(&Verbs::receive_send), peer, chunk, to)
      .def("receive_reduce", writing(&Verbs::receive_reduce), peer, chunk)
      .def("receive_reduce_send", writing(&Verbs::receive_reduce_send), peer, chunk, to)
      .def("receive_reduce_copy_send", writing(&Verbs::receive_reduce_copy_send), peer, chunk, to)
      .def("reduce_copy", writing(&Verbs::reduce_copy), operands, chunk)
      .def("reduce_send", writing(&Verbs::reduce_send), operands, chunk, to)
      .def("reduce_copy_send", writing(&Verbs::reduce_copy_send), operands, chunk, to)
      .def("step", writing(&Verbs::step), operands, nb::arg("results"), chunk,
           "Combines the operands, in their order, and hands the result to all of `results`.")
      .def("starts_after", &OwnLane::starts_after, nb::arg("other"),
           "Orders all steps of this lane after all steps of the other.");
}

void bind_builder(nb::module_& module) {
  nb::class_<OwnBuilder>(module, "ScheduleBuilder",
                         "Builds the schedule of one rank. `chunks` is the number of chunks of a "
                         "piece, or of blocks where the operation has blocks.")
      .def(nb::init<const PlanRequest&, int, int>(), nb::arg("request"), nb::arg("chunks") = 1,
           nb::arg("scratch_chunks") = 0)
      .def("lane", &OwnBuilder::lane, nb::arg("receives_on") = 0, nb::arg("sends_on") = 0,
           "Adds a lane that receives on one channel and sends on one.")
      .def("finish", &OwnBuilder::finish, nb::arg("widest") = 1,
           "Returns the schedule. `widest` is the most chunks that a step of any rank moves.");
}

std::string name_of(Accumulate accumulate) {
  switch (accumulate) {
    case Accumulate::as_configured: break;  // is resolved before a call is planned
    case Accumulate::step: return "step";
    case Accumulate::f32: return "f32";
    case Accumulate::reproducible: return "reproducible";
  }
  return "";
}

void bind_query(nb::module_& module) {
  nb::class_<SelectQuery>(module, "SelectQuery",
                          "Asks a function `select` which algorithm serves such calls. `count` and "
                          "`bytes` are 0 where ranks know different lengths.")
      .def_prop_ro("operation",
                   [](const SelectQuery& self) { return std::string(to_string(self.what)); })
      .def_prop_ro("type",
                   [](const SelectQuery& self) { return std::string(to_string(self.type)); })
      .def_prop_ro("op", [](const SelectQuery& self) { return std::string(to_string(self.op)); })
      .def_ro("root", &SelectQuery::root)
      .def_ro("count", &SelectQuery::count)
      .def_ro("bytes", &SelectQuery::bytes)
      .def_ro("ranks", &SelectQuery::ranks)
      .def_prop_ro("accumulate", [](const SelectQuery& self) { return name_of(self.accumulate); })
      .def("__repr__", [](const SelectQuery& self) {
        return "<SelectQuery: " + std::string(to_string(self.what)) + " of " +
               std::to_string(self.count) + " x " + std::string(to_string(self.type)) + ", " +
               std::string(to_string(self.op)) + ", " + std::to_string(self.ranks) + " ranks>";
      });
}

void bind_request(nb::module_& module) {
  nb::class_<PlanRequest>(module, "PlanRequest",
                          "Asks an algorithm for the schedule of one rank. `groups` has the number "
                          "of each rank's machine, or nothing if there is only one. Ranks of a "
                          "machine with near numbers in `places` are near each other there.")
      .def(
          "__init__",
          [](PlanRequest* self, const std::string& operation, int rank, int ranks, int root,
             std::vector<int> groups, std::vector<int> places) {
            new (self) PlanRequest(
                request_of(operation, rank, ranks, root, std::move(groups), std::move(places)));
          },
          nb::arg("operation"), nb::arg("rank"), nb::arg("ranks"), nb::arg("root") = 0,
          nb::arg("groups") = std::vector<int>(), nb::arg("places") = std::vector<int>())
      .def_prop_ro("operation",
                   [](const PlanRequest& self) { return std::string(to_string(self.what)); })
      .def_ro("rank", &PlanRequest::rank)
      .def_ro("ranks", &PlanRequest::ranks)
      .def_ro("root", &PlanRequest::root)
      .def_ro("groups", &PlanRequest::groups)
      .def_ro("places", &PlanRequest::places)
      .def("__repr__", [](const PlanRequest& self) {
        return "PlanRequest(\"" + std::string(to_string(self.what)) +
               "\", rank=" + std::to_string(self.rank) + ", ranks=" + std::to_string(self.ranks) +
               ", root=" + std::to_string(self.root) + argument_text("groups", self.groups) +
               argument_text("places", self.places) + ")";
      });

  nb::class_<Operand>(module, "Operand",
                      "Where a step reads or writes: input, output or scratch of this rank and the "
                      "number of a chunk, or a message from or to a peer.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__repr__",
           [](const Operand& self) {
             const std::array<const char*, 4> names{"input", "output", "scratch", "peer"};
             return std::string(names.at(static_cast<std::size_t>(self.place))) + "(" +
                    std::to_string(self.index) + ")";
           })
      .def("__hash__", [](const Operand& self) {
        return static_cast<Py_hash_t>(self.index) * 4 + static_cast<int>(self.place);
      });
  module.def(
      "input", [](int chunk) { return input(chunk); }, nb::arg("chunk"));
  module.def(
      "output", [](int chunk) { return output(chunk); }, nb::arg("chunk"));
  module.def(
      "scratch", [](int chunk) { return scratch(chunk); }, nb::arg("chunk"));
  module.def(
      "peer", [](int rank) { return peer(rank); }, nb::arg("rank"));
  module.def("in_rank_order", &in_rank_order, nb::arg("request"), nb::arg("chunk"),
             "One operand for each rank, in the order of ranks: this rank's own input, and a "
             "message from each other.");
}

void bind_schedule(nb::module_& module) {
  nb::class_<Schedule>(module, "Schedule",
                       "One rank's part of an operation. str() shows it, a line for each step.")
      .def_prop_ro("operation",
                   [](const Schedule& self) { return std::string(to_string(self.what)); })
      .def_ro("rank", &Schedule::rank)
      .def_ro("ranks", &Schedule::ranks)
      .def_ro("root", &Schedule::root)
      .def_ro("chunks", &Schedule::chunks)
      .def(
          "to_json", [](const Schedule& self) { return to_json(self); },
          "All of the schedule, as one object. An array of those of all ranks is a file of "
          "schedules.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const Schedule& self) {
             return static_cast<Py_hash_t>(std::hash<std::string>()(to_text(self)) >> 2);
           })
      .def("__str__", [](const Schedule& self) { return to_text(self); })
      .def("__repr__", [](const Schedule& self) {
        return "<Schedule of " + std::string(to_string(self.what)) + ", rank " +
               std::to_string(self.rank) + " of " + std::to_string(self.ranks) + ">";
      });

  nb::class_<Verdict>(module, "Verdict",
                      "True if the schedules are proved; `why` has the counter-example.")
      .def_ro("ok", &Verdict::ok)
      .def_ro("why", &Verdict::why)
      .def_ro("too_large", &Verdict::too_large)
      .def("__bool__", [](const Verdict& self) { return self.ok; })
      .def("__repr__", [](const Verdict& self) {
        return self.ok ? std::string("<Verdict: proved>") : "<Verdict: " + self.why + ">";
      });
  module.def("verify", &verify_all, nb::arg("schedules"), nb::kw_only(), nb::arg("window") = 2,
             nb::arg("pieces") = 3, nb::arg("operations") = 2, nb::arg("in_place") = nb::none(),
             "Proves the schedules of all ranks, or shows why they are wrong: contributions that "
             "are missing or come twice, races, deadlocks, and results that differ between ranks. "
             "Where `in_place` is None, they are proved both out of place and in place.");
  module.def(
      "to_dot", [](const std::vector<Schedule>& all) { return to_dot(all); }, nb::arg("schedules"),
      "The schedules as a picture in the language of Graphviz.");
}

}  // namespace

Select select_of(const nb::object& function) {
  if (PyCallable_Check(function.ptr()) == 0)
    refuse_schedule("select: " + described(function) + " is no function");
  return [held = shared(Planned(function))](const SelectQuery& query) {
    return called<nb::str, std::string>(*held, query, "str");
  };
}

void bind_schedules(nb::module_& module) {
  bind_request(module);
  bind_query(module);
  bind_lane(module);
  bind_builder(module);
  bind_schedule(module);
}

void bind_algorithms(nb::class_<Communicator>& type) {
  type.def("add_algorithm", &add_algorithm, nb::arg("name"), nb::arg("planner"),
           nb::sig("def add_algorithm(self, name: str, planner: "
                   "collections.abc.Callable[[PlanRequest], Schedule]) -> None"))
      .def(
          "add_schedules",
          [](const Communicator& self, const std::string& path) {
            const Communicator::InCall in_call(self);
            return unlocked([&] { return in_call.communicator().add_schedules(path); });
          },
          nb::arg("path"));
}

}  // namespace tutti::python
