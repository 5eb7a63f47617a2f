// The operations, blocking and asynchronous, on whatever is an Array.
#include <cstring>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "communicator.h"

namespace tutti::python {
namespace {

using Optional = std::optional<nb::object>;
template <Form kForm>
using Returned = std::conditional_t<kForm == Form::blocking, void,
                                    std::conditional_t<kForm == Form::async, Work, Persistent>>;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::usage, what); }

Op op_of(const std::string& name) {
  for (int k = 0; k < kOps; ++k)
    if (to_string(static_cast<Op>(k)) == name) return static_cast<Op>(k);
  refuse("no such reduction: \"" + name +
         "\"; there are sum, prod, min, max, avg, premul_sum, bit_and, bit_or, bit_xor, "
         "logical_and and logical_or");
}

void same_type(const char* what, const Array& first, const Array& second) {
  if (first.type != second.type)
    refuse(std::string(what) + ": the input's elements are " + std::string(to_string(first.type)) +
           ", and the output's " + std::string(to_string(second.type)));
}

void holds(const char* what, const Array& array, std::size_t count) {
  if (array.count != count)
    refuse(std::string(what) + ": an array of " + std::to_string(array.count) + " elements where " +
           std::to_string(count) + " are needed");
}

std::size_t part(const char* what, std::size_t whole, int size) {
  if (whole % static_cast<std::size_t>(size) != 0)
    refuse(std::string(what) + ": " + std::to_string(whole) +
           " elements cannot be shared evenly by " + std::to_string(size) + " ranks");
  return whole / static_cast<std::size_t>(size);
}

Options options_of(std::optional<double> timeout, std::string algorithm, Group* group) {
  return {timeout, std::move(algorithm), "", group};
}

template <typename... Each>
Arrays arrays(Each&&... each) {
  Arrays all;
  (all.push_back(std::move(each)), ...);
  return all;
}

// One element of the input's type, as CallOptions::premultiplier wants it.
Array factor_of(Op op, const Optional& factor, const Array& input) {
  if (op != Op::premul_sum) return {};
  if (!factor)
    refuse("premul_sum needs a premultiplier: an array of one element of the input's type");
  Array value("premultiplier", *factor, false);
  same_type("premultiplier", input, value);
  holds("premultiplier", value, 1);
  return value;
}

#define TUTTI_CALL(name, ...)                                                            \
  [&]<Form kMade>(tutti::Communicator& comm, const CallOptions& told, As<kMade>) {       \
    if constexpr (kMade == Form::async) return comm.name##_async(__VA_ARGS__, told);     \
    if constexpr (kMade == Form::persistent) return comm.name##_init(__VA_ARGS__, told); \
    if constexpr (kMade == Form::blocking) comm.name(__VA_ARGS__, told);                 \
  }

// What every operation takes after its own arguments.
#define TUTTI_TAKES                                                                     \
  nb::kw_only(), nb::arg("timeout") = nb::none(), nb::arg("algorithm") = std::string(), \
                 nb::arg("group") = nb::none()

template <Form kForm>
Returned<kForm> all_reduce(Communicator& self, nb::handle input, const std::string& op,
                           Optional output, Optional factor, const std::string& accumulate,
                           std::optional<double> timeout, std::string algorithm, Group* group) {
  const Op how = op_of(op);
  Array in("all_reduce", input, !output);
  Array out = output ? Array("all_reduce", *output, true) : Array();
  if (output) same_type("all_reduce", in, out), holds("all_reduce", out, in.count);
  const Array multiplier = factor_of(how, factor, in);
  Options options = options_of(timeout, std::move(algorithm), group);
  options.accumulate = accumulate;
  const void* from = in.data;
  void* const to = output ? out.data : in.data;
  const std::size_t count = in.count;
  const DataType type = in.type;
  if (kForm == Form::blocking && group == nullptr)
    return self.make<kForm>(options, {}, TUTTI_CALL(all_reduce, from, to, count, type, how),
                            multiplier.data);
  return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                          TUTTI_CALL(all_reduce, from, to, count, type, how), multiplier.data);
}

template <Form kForm>
Returned<kForm> reduce(Communicator& self, nb::handle input, int root, const std::string& op,
                       Optional output, std::optional<double> timeout, std::string algorithm,
                       Group* group) {
  const Op how = op_of(op);
  const bool here = self.get().rank() == root;
  Array in("reduce", input, here && !output);
  Array out = here && output ? Array("reduce", *output, true) : Array();
  if (here && output) same_type("reduce", in, out), holds("reduce", out, in.count);
  const void* from = in.data;
  void* const to = !here ? nullptr : output ? out.data : in.data;
  const std::size_t count = in.count;
  const DataType type = in.type;
  return self.make<kForm>(options_of(timeout, std::move(algorithm), group),
                          arrays(std::move(in), std::move(out)),
                          TUTTI_CALL(reduce, from, to, count, type, how, root));
}

template <Form kForm>
Returned<kForm> broadcast(Communicator& self, nb::handle array, int root,
                          std::optional<double> timeout, std::string algorithm, Group* group) {
  Array data("broadcast", array, self.get().rank() != root);
  void* const at = data.data;
  const std::size_t count = data.count;
  const DataType type = data.type;
  return self.make<kForm>(options_of(timeout, std::move(algorithm), group), arrays(std::move(data)),
                          TUTTI_CALL(broadcast, at, count, type, root));
}

template <Form kForm>
Returned<kForm> all_gather(Communicator& self, nb::handle input, nb::handle output,
                           std::optional<Counts> counts, std::optional<double> timeout,
                           std::string algorithm, Group* group) {
  Array in("all_gather", input, false), out("all_gather", output, true);
  same_type("all_gather", in, out);
  const Options options = options_of(timeout, std::move(algorithm), group);
  const void* from = in.data;
  void* const to = out.data;
  const std::size_t count = in.count;
  const DataType type = in.type;
  if (counts) {
    std::size_t whole = 0;
    for (const std::size_t each : *counts) whole += each;
    holds("all_gather", out, whole);
    return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                            TUTTI_CALL(all_gatherv, from, to, *counts, PerRank{}, type));
  }
  holds("all_gather", out, count * static_cast<std::size_t>(self.get().size()));
  return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                          TUTTI_CALL(all_gather, from, to, count, type));
}

template <Form kForm>
Returned<kForm> reduce_scatter(Communicator& self, nb::handle input, nb::handle output,
                               const std::string& op, std::optional<Counts> counts,
                               std::optional<double> timeout, std::string algorithm, Group* group) {
  const Op how = op_of(op);
  Array in("reduce_scatter", input, false), out("reduce_scatter", output, true);
  same_type("reduce_scatter", in, out);
  const Options options = options_of(timeout, std::move(algorithm), group);
  const void* from = in.data;
  void* const to = out.data;
  const std::size_t count = out.count;
  const DataType type = in.type;
  if (counts)
    return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                            TUTTI_CALL(reduce_scatterv, from, to, *counts, PerRank{}, type, how));
  holds("reduce_scatter", in, count * static_cast<std::size_t>(self.get().size()));
  return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                          TUTTI_CALL(reduce_scatter, from, to, count, type, how));
}

template <Form kForm>
Returned<kForm> gather(Communicator& self, nb::handle input, Optional output, int root,
                       std::optional<Counts> counts, std::optional<double> timeout,
                       std::string algorithm, Group* group) {
  const bool here = self.get().rank() == root;
  if (here && !output) refuse("gather: the root needs an output");
  Array in("gather", input, false);
  Array out = here ? Array("gather", *output, true) : Array();
  if (here) same_type("gather", in, out);
  const Options options = options_of(timeout, std::move(algorithm), group);
  const void* from = in.data;
  void* const to = out.data;
  const std::size_t count = in.count;
  const DataType type = in.type;
  if (counts)
    return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                            TUTTI_CALL(gatherv, from, count, to, *counts, PerRank{}, type, root));
  if (here) holds("gather", out, count * static_cast<std::size_t>(self.get().size()));
  return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                          TUTTI_CALL(gather, from, to, count, type, root));
}

template <Form kForm>
Returned<kForm> scatter(Communicator& self, Optional input, nb::handle output, int root,
                        std::optional<Counts> counts, std::optional<double> timeout,
                        std::string algorithm, Group* group) {
  const bool here = self.get().rank() == root;
  if (here && !input) refuse("scatter: the root needs an input");
  Array out("scatter", output, true);
  Array in = here ? Array("scatter", *input, false) : Array();
  if (here) same_type("scatter", in, out);
  const Options options = options_of(timeout, std::move(algorithm), group);
  const void* from = in.data;
  void* const to = out.data;
  const std::size_t count = out.count;
  const DataType type = out.type;
  if (counts)
    return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                            TUTTI_CALL(scatterv, from, *counts, PerRank{}, to, count, type, root));
  if (here) holds("scatter", in, count * static_cast<std::size_t>(self.get().size()));
  return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                          TUTTI_CALL(scatter, from, to, count, type, root));
}

template <Form kForm>
Returned<kForm> all_to_all(Communicator& self, nb::handle input, nb::handle output,
                           std::optional<Counts> input_counts, std::optional<Counts> output_counts,
                           std::optional<double> timeout, std::string algorithm, Group* group) {
  Array in("all_to_all", input, false), out("all_to_all", output, true);
  same_type("all_to_all", in, out);
  const Options options = options_of(timeout, std::move(algorithm), group);
  const void* from = in.data;
  void* const to = out.data;
  const DataType type = in.type;
  if (input_counts.has_value() != output_counts.has_value())
    refuse("all_to_all: takes the counts of both sides, or of none");
  if (input_counts)
    return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                            TUTTI_CALL(all_to_allv, from, *input_counts, PerRank{}, to,
                                       *output_counts, PerRank{}, type));
  holds("all_to_all", out, in.count);
  const std::size_t count = part("all_to_all", in.count, self.get().size());
  return self.make<kForm>(options, arrays(std::move(in), std::move(out)),
                          TUTTI_CALL(all_to_all, from, to, count, type));
}

template <Form kForm>
Returned<kForm> barrier(Communicator& self, std::optional<double> timeout, Group* group) {
  return self.make<kForm>(
      options_of(timeout, "", group), {},
      []<Form kMade>(tutti::Communicator& comm, const CallOptions& told, As<kMade>) {
        if constexpr (kMade == Form::async) return comm.barrier_async(told);
        if constexpr (kMade == Form::persistent) return comm.barrier_init(told);
        if constexpr (kMade == Form::blocking) comm.barrier(told);
      });
}

template <Form kForm>
Returned<kForm> send(Communicator& self, nb::handle array, int peer, int tag,
                     std::optional<double> timeout, Group* group) {
  Array data("send", array, false);
  const void* at = data.data;
  const std::size_t count = data.count;
  const DataType type = data.type;
  return self.make<kForm>(options_of(timeout, "", group), arrays(std::move(data)),
                          TUTTI_CALL(send, at, count, type, peer, tag));
}

// Returns (source, tag, count); of another form, they are `received`.
template <Form kForm>
std::conditional_t<kForm == Form::blocking, std::optional<Got>, Returned<kForm>> recv(
    Communicator& self, nb::handle array, int peer, int tag, std::optional<double> timeout,
    Group* group) {
  Array data("recv", array, true);
  void* const at = data.data;
  const std::size_t count = data.count;
  const DataType type = data.type;
  const auto received = std::make_shared<Received>();
  const auto made = [&] {
    return self.make<kForm>(options_of(timeout, "", group), arrays(std::move(data)),
                            TUTTI_CALL(recv, at, count, type, peer, tag), nullptr, received);
  };
  if constexpr (kForm == Form::blocking) {
    made();
    return group == nullptr ? got(received.get()) : std::nullopt;
  } else {
    return made();
  }
}

template <Form kForm>
constexpr const char* kSuffix = kForm == Form::blocking ? ""
                                : kForm == Form::async  ? "_async"
                                                        : "_init";

template <Form kForm>
void bind_blocks(nb::class_<Communicator>& type) {
  const auto name = [](const char* op) { return op + std::string(kSuffix<kForm>); };
  type.def(name("all_gather").c_str(), &all_gather<kForm>, nb::arg("input"), nb::arg("output"),
           nb::arg("counts") = nb::none(), TUTTI_TAKES)
      .def(name("reduce_scatter").c_str(), &reduce_scatter<kForm>, nb::arg("input"),
           nb::arg("output"), nb::arg("op") = "sum", nb::arg("counts") = nb::none(), TUTTI_TAKES)
      .def(name("gather").c_str(), &gather<kForm>, nb::arg("input"), nb::arg("output") = nb::none(),
           nb::arg("root") = 0, nb::arg("counts") = nb::none(), TUTTI_TAKES)
      .def(name("scatter").c_str(), &scatter<kForm>, nb::arg("input").none(), nb::arg("output"),
           nb::arg("root") = 0, nb::arg("counts") = nb::none(), TUTTI_TAKES)
      .def(name("all_to_all").c_str(), &all_to_all<kForm>, nb::arg("input"), nb::arg("output"),
           nb::arg("input_counts") = nb::none(), nb::arg("output_counts") = nb::none(),
           TUTTI_TAKES);
}

template <Form kForm>
void bind_whole(nb::class_<Communicator>& type) {
  const auto name = [](const char* op) { return op + std::string(kSuffix<kForm>); };
  type.def(name("all_reduce").c_str(), &all_reduce<kForm>, nb::arg("input"), nb::arg("op") = "sum",
           nb::arg("output") = nb::none(), nb::arg("premultiplier") = nb::none(),
           nb::arg("accumulate") = "", TUTTI_TAKES)
      .def(name("reduce").c_str(), &reduce<kForm>, nb::arg("input"), nb::arg("root") = 0,
           nb::arg("op") = "sum", nb::arg("output") = nb::none(), TUTTI_TAKES)
      .def(name("broadcast").c_str(), &broadcast<kForm>, nb::arg("array"), nb::arg("root") = 0,
           TUTTI_TAKES)
      .def(name("barrier").c_str(), &barrier<kForm>, nb::kw_only(), nb::arg("timeout") = nb::none(),
           nb::arg("group") = nb::none());
}

template <Form kForm>
void bind_messages(nb::class_<Communicator>& type) {
  const auto name = [](const char* op) { return op + std::string(kSuffix<kForm>); };
  type.def(name("send").c_str(), &send<kForm>, nb::arg("array"), nb::arg("peer"),
           nb::arg("tag") = 0, nb::kw_only(), nb::arg("timeout") = nb::none(),
           nb::arg("group") = nb::none())
      .def(name("recv").c_str(), &recv<kForm>, nb::arg("array"), nb::arg("peer") = kAnySource,
           nb::arg("tag") = kAnyTag, nb::kw_only(), nb::arg("timeout") = nb::none(),
           nb::arg("group") = nb::none());
}

}  // namespace

void bind_operations(nb::class_<Communicator>& type) {
  const auto bind = [&]<Form kForm>(As<kForm>) {
    bind_whole<kForm>(type);
    bind_blocks<kForm>(type);
    bind_messages<kForm>(type);
  };
  bind(As<Form::blocking>());
  bind(As<Form::async>());
  bind(As<Form::persistent>());
}

}  // namespace tutti::python
