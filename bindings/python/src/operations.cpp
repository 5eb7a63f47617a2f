// Binds the operations in all three forms, with Array as their buffers.
#include <numeric>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "communicator.h"
#include "names.h"
#include "reducing.h"

namespace tutti::python {
namespace {

using Optional = std::optional<nb::object>;
template <Form kForm>
using Returned = std::conditional_t<kForm == Form::blocking, void,
                                    std::conditional_t<kForm == Form::async, Work, Persistent>>;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::usage, what); }

std::string explain(const Communicator& self, const std::string& operation, std::size_t count,
                    const std::string& type, const std::string& op, int root) {
  // The program's function that selects algorithms may be called.
  const Communicator::InCall in_call(self);
  return unlocked([&] {
    return in_call.communicator().explain(collective_of(operation), count,
                                          named<DataType>(type, kDataTypes, "data type"), op_of(op),
                                          root);
  });
}

std::vector<AlgorithmPrice> prices(const Communicator& self, const std::string& operation,
                                   std::size_t count, const std::string& type,
                                   const std::string& op, int root) {
  const Communicator::InCall in_call(self);
  return unlocked([&] {
    return in_call.communicator().prices(collective_of(operation), count,
                                         named<DataType>(type, kDataTypes, "data type"), op_of(op),
                                         root);
  });
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

std::size_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::size_t part(const char* what, std::size_t whole, int size) {
  if (whole % static_cast<std::size_t>(size) != 0)
    refuse(std::string(what) + ": " + std::to_string(whole) +
           " elements cannot be shared evenly by " + std::to_string(size) + " ranks");
  return whole / static_cast<std::size_t>(size);
}

// Returns one element of the input's type, for CallOptions::premultiplier.
Array factor_of(Op op, const Optional& factor, const Array& input) {
  if (op != Op::premul_sum && factor)
    refuse("premultiplier: only premul_sum multiplies, and the call names another reduction");
  if (op != Op::premul_sum) return {};
  if (!factor)
    refuse("premul_sum needs a premultiplier: an array of one element of the input's type");
  Array value("premultiplier", *factor, false, nullptr);
  if (value.on_gpu)
    refuse("premultiplier: the array is in a GPU's memory, and the factor is read by the host");
  same_type("premultiplier", input, value);
  holds("premultiplier", value, 1);
  return value;
}

#define TUTTI_CALL(name, ...)                                                                      \
  [&]<Form kMade>(tutti::Communicator& comm, const CallOptions& told, As<kMade>) {                 \
    if constexpr (kMade == Form::async) return comm.name##_async(__VA_ARGS__ __VA_OPT__(, ) told); \
    if constexpr (kMade == Form::persistent)                                                       \
      return comm.name##_init(__VA_ARGS__ __VA_OPT__(, ) told);                                    \
    if constexpr (kMade == Form::blocking) comm.name(__VA_ARGS__ __VA_OPT__(, ) told);             \
  }

// The arguments that every operation takes after its own.
#define TUTTI_TAKES                                                                     \
  nb::kw_only(), nb::arg("timeout") = nb::none(), nb::arg("algorithm") = std::string(), \
                 nb::arg("group") = nb::none(), nb::arg("stream") = nb::none()

template <Form kForm>
Returned<kForm> all_reduce(Communicator& self, nb::handle input, nb::handle op, Optional output,
                           Optional factor, const std::string& accumulate,
                           std::optional<double> timeout, std::string algorithm, Group* group,
                           nb::handle named) {
  const Stream stream = stream_of(named);
  const Reducing how(op);
  Array in("all_reduce", input, !output, stream);
  Array out = output ? Array("all_reduce", *output, true, stream) : Array();
  if (output) same_type("all_reduce", in, out), holds("all_reduce", out, in.count);
  const Array multiplier = factor_of(how.op, factor, in);
  Options options = how.options({timeout, std::move(algorithm), group, stream});
  options.accumulate = accumulate;
  options.premultiplier = multiplier.data;
  void* const to = output ? out.data : in.data;
  const std::size_t count = how.elements("all_reduce", in, in.count);
  return self.make<kForm>(options, TUTTI_CALL(all_reduce, in.data, to, count, in.type, how.op), in,
                          out);
}

template <Form kForm>
Returned<kForm> reduce(Communicator& self, nb::handle input, int root, nb::handle op,
                       Optional output, std::optional<double> timeout, std::string algorithm,
                       Group* group, nb::handle named) {
  const Stream stream = stream_of(named);
  const Reducing how(op);
  const bool here = self.get().rank() == root;
  Array in("reduce", input, here && !output, stream);
  Array out = here && output ? Array("reduce", *output, true, stream) : Array();
  if (here && output) same_type("reduce", in, out), holds("reduce", out, in.count);
  void* const to = !here ? nullptr : output ? out.data : in.data;
  const std::size_t count = how.elements("reduce", in, in.count);
  return self.make<kForm>(how.options({timeout, std::move(algorithm), group, stream}),
                          TUTTI_CALL(reduce, in.data, to, count, in.type, how.op, root), in, out);
}

template <Form kForm>
Returned<kForm> broadcast(Communicator& self, nb::handle array, int root,
                          std::optional<double> timeout, std::string algorithm, Group* group,
                          nb::handle named) {
  const Stream stream = stream_of(named);
  Array data("broadcast", array, self.get().rank() != root, stream);
  return self.make<kForm>({timeout, std::move(algorithm), group, stream},
                          TUTTI_CALL(broadcast, data.data, data.count, data.type, root), data);
}

template <Form kForm>
Returned<kForm> all_gather(Communicator& self, nb::handle input, nb::handle output,
                           std::optional<Counts> counts, std::optional<double> timeout,
                           std::string algorithm, Group* group, nb::handle named) {
  const Stream stream = stream_of(named);
  Array in("all_gather", input, false, stream), out("all_gather", output, true, stream);
  same_type("all_gather", in, out);
  const Options options{timeout, std::move(algorithm), group, stream};
  if (counts) {
    holds("all_gather", out, sum(*counts));
    return self.make<kForm>(
        options, TUTTI_CALL(all_gatherv, in.data, out.data, *counts, PerRank{}, in.type), in, out);
  }
  holds("all_gather", out, in.count * static_cast<std::size_t>(self.get().size()));
  return self.make<kForm>(options, TUTTI_CALL(all_gather, in.data, out.data, in.count, in.type), in,
                          out);
}

template <Form kForm>
Returned<kForm> reduce_scatter(Communicator& self, nb::handle input, nb::handle output,
                               nb::handle op, std::optional<Counts> counts,
                               std::optional<double> timeout, std::string algorithm, Group* group,
                               nb::handle named) {
  const Stream stream = stream_of(named);
  const Reducing how(op);
  Array in("reduce_scatter", input, false, stream), out("reduce_scatter", output, true, stream);
  same_type("reduce_scatter", in, out);
  const Options options = how.options({timeout, std::move(algorithm), group, stream});
  if (counts) {
    const auto rank = static_cast<std::size_t>(self.get().rank());
    holds("reduce_scatter", in, sum(*counts));
    if (rank < counts->size()) holds("reduce_scatter", out, (*counts)[rank]);
    for (std::size_t& count : *counts) count = how.elements("reduce_scatter", in, count);
    return self.make<kForm>(
        options,
        TUTTI_CALL(reduce_scatterv, in.data, out.data, *counts, PerRank{}, in.type, how.op), in,
        out);
  }
  holds("reduce_scatter", in, out.count * static_cast<std::size_t>(self.get().size()));
  const std::size_t count = how.elements("reduce_scatter", out, out.count);
  return self.make<kForm>(
      options, TUTTI_CALL(reduce_scatter, in.data, out.data, count, in.type, how.op), in, out);
}

template <Form kForm>
Returned<kForm> gather(Communicator& self, nb::handle input, Optional output, int root,
                       std::optional<Counts> counts, std::optional<double> timeout,
                       std::string algorithm, Group* group, nb::handle named) {
  const Stream stream = stream_of(named);
  const bool here = self.get().rank() == root;
  if (here && !output) refuse("gather: the root needs an output");
  Array in("gather", input, false, stream);
  Array out = here ? Array("gather", *output, true, stream) : Array();
  if (here) same_type("gather", in, out);
  const Options options{timeout, std::move(algorithm), group, stream};
  if (here && counts) holds("gather", out, sum(*counts));
  if (counts)
    return self.make<kForm>(
        options,
        TUTTI_CALL(gatherv, in.data, in.count, out.data, *counts, PerRank{}, in.type, root), in,
        out);
  if (here) holds("gather", out, in.count * static_cast<std::size_t>(self.get().size()));
  return self.make<kForm>(options, TUTTI_CALL(gather, in.data, out.data, in.count, in.type, root),
                          in, out);
}

template <Form kForm>
Returned<kForm> scatter(Communicator& self, Optional input, nb::handle output, int root,
                        std::optional<Counts> counts, std::optional<double> timeout,
                        std::string algorithm, Group* group, nb::handle named) {
  const Stream stream = stream_of(named);
  const bool here = self.get().rank() == root;
  if (here && !input) refuse("scatter: the root needs an input");
  Array out("scatter", output, true, stream);
  Array in = here ? Array("scatter", *input, false, stream) : Array();
  if (here) same_type("scatter", in, out);
  const Options options{timeout, std::move(algorithm), group, stream};
  if (here && counts) holds("scatter", in, sum(*counts));
  if (counts)
    return self.make<kForm>(
        options,
        TUTTI_CALL(scatterv, in.data, *counts, PerRank{}, out.data, out.count, out.type, root), in,
        out);
  if (here) holds("scatter", in, out.count * static_cast<std::size_t>(self.get().size()));
  return self.make<kForm>(
      options, TUTTI_CALL(scatter, in.data, out.data, out.count, out.type, root), in, out);
}

template <Form kForm>
Returned<kForm> all_to_all(Communicator& self, nb::handle input, nb::handle output,
                           std::optional<Counts> input_counts, std::optional<Counts> output_counts,
                           std::optional<double> timeout, std::string algorithm, Group* group,
                           nb::handle named) {
  const Stream stream = stream_of(named);
  Array in("all_to_all", input, false, stream), out("all_to_all", output, true, stream);
  same_type("all_to_all", in, out);
  const Options options{timeout, std::move(algorithm), group, stream};
  if (input_counts.has_value() != output_counts.has_value())
    refuse("all_to_all: takes the counts of both sides, or of none");
  if (input_counts) {
    holds("all_to_all", in, sum(*input_counts));
    holds("all_to_all", out, sum(*output_counts));
    return self.make<kForm>(options,
                            TUTTI_CALL(all_to_allv, in.data, *input_counts, PerRank{}, out.data,
                                       *output_counts, PerRank{}, in.type),
                            in, out);
  }
  holds("all_to_all", out, in.count);
  const std::size_t count = part("all_to_all", in.count, self.get().size());
  return self.make<kForm>(options, TUTTI_CALL(all_to_all, in.data, out.data, count, in.type), in,
                          out);
}

template <Form kForm>
Returned<kForm> barrier(Communicator& self, std::optional<double> timeout, Group* group,
                        nb::handle named) {
  const Stream stream = stream_of(named);
  return self.make<kForm>({timeout, "", group, stream}, TUTTI_CALL(barrier));
}

template <Form kForm>
Returned<kForm> send(Communicator& self, nb::handle array, int peer, int tag,
                     std::optional<double> timeout, Group* group, nb::handle named) {
  const Stream stream = stream_of(named);
  Array data("send", array, false, stream);
  return self.make<kForm>({timeout, "", group, stream},
                          TUTTI_CALL(send, data.data, data.count, data.type, peer, tag), data);
}

// Returns (source, tag, count). In the other forms they are the property `received`.
template <Form kForm>
std::conditional_t<kForm == Form::blocking, std::optional<Got>, Returned<kForm>> recv(
    Communicator& self, nb::handle array, int peer, int tag, std::optional<double> timeout,
    Group* group, nb::handle named) {
  const Stream stream = stream_of(named);
  Array data("recv", array, true, stream);
  Options options{timeout, "", group, stream};
  options.received = std::make_shared<Received>();
  const auto call = TUTTI_CALL(recv, data.data, data.count, data.type, peer, tag);
  if constexpr (kForm == Form::blocking) {
    self.make<kForm>(options, call, data);
    return group == nullptr ? got(options.received.get()) : std::nullopt;
  } else {
    return self.make<kForm>(options, call, data);
  }
}

template <Form kForm>
std::string name(const char* operation) {
  return operation + std::string(kForm == Form::blocking ? ""
                                 : kForm == Form::async  ? "_async"
                                                         : "_init");
}

template <Form kForm>
void bind_blocks(nb::class_<Communicator>& type) {
  type.def(name<kForm>("all_gather").c_str(), &all_gather<kForm>, nb::arg("input"),
           nb::arg("output"), nb::arg("counts") = nb::none(), TUTTI_TAKES)
      .def(name<kForm>("reduce_scatter").c_str(), &reduce_scatter<kForm>, nb::arg("input"),
           nb::arg("output"), nb::arg("op") = "sum", nb::arg("counts") = nb::none(), TUTTI_TAKES)
      .def(name<kForm>("gather").c_str(), &gather<kForm>, nb::arg("input"),
           nb::arg("output") = nb::none(), nb::arg("root") = 0, nb::arg("counts") = nb::none(),
           TUTTI_TAKES)
      .def(name<kForm>("scatter").c_str(), &scatter<kForm>, nb::arg("input").none(),
           nb::arg("output"), nb::arg("root") = 0, nb::arg("counts") = nb::none(), TUTTI_TAKES)
      .def(name<kForm>("all_to_all").c_str(), &all_to_all<kForm>, nb::arg("input"),
           nb::arg("output"), nb::arg("input_counts") = nb::none(),
           nb::arg("output_counts") = nb::none(), TUTTI_TAKES);
}

template <Form kForm>
void bind_whole(nb::class_<Communicator>& type) {
  type.def(name<kForm>("all_reduce").c_str(), &all_reduce<kForm>, nb::arg("input"),
           nb::arg("op") = "sum", nb::arg("output") = nb::none(),
           nb::arg("premultiplier") = nb::none(), nb::arg("accumulate") = "", TUTTI_TAKES)
      .def(name<kForm>("reduce").c_str(), &reduce<kForm>, nb::arg("input"), nb::arg("root") = 0,
           nb::arg("op") = "sum", nb::arg("output") = nb::none(), TUTTI_TAKES)
      .def(name<kForm>("broadcast").c_str(), &broadcast<kForm>, nb::arg("array"),
           nb::arg("root") = 0, TUTTI_TAKES)
      .def(name<kForm>("barrier").c_str(), &barrier<kForm>, nb::kw_only(),
           nb::arg("timeout") = nb::none(), nb::arg("group") = nb::none(),
           nb::arg("stream") = nb::none());
}

template <Form kForm>
void bind_messages(nb::class_<Communicator>& type) {
  type.def(name<kForm>("send").c_str(), &send<kForm>, nb::arg("array"), nb::arg("peer"),
           nb::arg("tag") = 0, nb::kw_only(), nb::arg("timeout") = nb::none(),
           nb::arg("group") = nb::none(), nb::arg("stream") = nb::none())
      .def(name<kForm>("recv").c_str(), &recv<kForm>, nb::arg("array"),
           nb::arg("peer") = kAnySource, nb::arg("tag") = kAnyTag, nb::kw_only(),
           nb::arg("timeout") = nb::none(), nb::arg("group") = nb::none(),
           nb::arg("stream") = nb::none());
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
  type.def("explain", &explain, nb::arg("operation"), nb::arg("count"), nb::arg("type") = "f32",
           nb::arg("op") = "sum", nb::arg("root") = 0);
  type.def("prices", &prices, nb::arg("operation"), nb::arg("count"), nb::arg("type") = "f32",
           nb::arg("op") = "sum", nb::arg("root") = 0);
}

void bind_prices(nb::module_& module) {
  nb::class_<AlgorithmPrice>(module, "AlgorithmPrice",
                             "What one algorithm is predicted to take for a call.")
      .def_ro("algorithm", &AlgorithmPrice::algorithm)
      .def_ro("message_bytes", &AlgorithmPrice::message_bytes)
      .def_ro("predicted_us", &AlgorithmPrice::predicted_us,
              "Microseconds, or None if so many ranks are not priced.")
      .def_ro("chosen", &AlgorithmPrice::chosen,
              "Whether a call that names no algorithm uses this one.")
      .def("__repr__", [](const AlgorithmPrice& self) {
        return "AlgorithmPrice(\"" + self.algorithm +
               "\", message_bytes=" + std::to_string(self.message_bytes) + ", predicted_us=" +
               (self.predicted_us ? std::to_string(*self.predicted_us) : std::string("None")) +
               (self.chosen ? ", chosen=True)" : ", chosen=False)");
      });
}

}  // namespace tutti::python
