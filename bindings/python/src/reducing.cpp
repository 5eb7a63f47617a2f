#include "reducing.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include <nanobind/stl/string.h>

#include <tutti/error.hpp>

#include "collected.h"
#include "exceptions.h"
#include "interpreter.h"
#include "names.h"

namespace tutti::python {
namespace {

[[noreturn]] void refuse_reduction(const std::string& what) {
  throw Error(ErrorKind::usage, "Reduction: " + what);
}

// Returns how memoryview names elements of the type; bytes where it has no name for them.
const char* format_of(DataType type) {
  switch (type) {
    case DataType::int8: return "b";
    case DataType::int16: return "h";
    case DataType::uint16: return "H";
    case DataType::int32: return "i";
    case DataType::uint32: return "I";
    case DataType::int64: return "q";
    case DataType::uint64: return "Q";
    case DataType::f32: return "f";
    case DataType::f64: return "d";
    case DataType::boolean: return "?";
    default: return "B";
  }
}

thread_local bool reduces = false;  // This thread runs the function of a Reduction.

/// Marks the thread as one that runs the function of a Reduction.
class Marked {
 public:
  Marked() noexcept { reduces = true; }
  ~Marked() { reduces = false; }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;
};

}  // namespace

void refuse_in_reduction() {
  if (reduces)
    throw Error(ErrorKind::usage,
                "a function that reduces must not call tutti: the call that runs "
                "it waits for it");
}

Reduction::Reduction(std::string name, nb::object function, const nb::object& elements)
    : name_(std::move(name)),
      function_(std::move(function)),
      its_{name_, 0, &Reduction::reduce, this} {
  if (nb::isinstance<nb::str>(elements)) {
    const auto type = named<DataType>(nb::cast<std::string>(elements), kDataTypes, "data type");
    its_.element_bytes = size_of(type);
    format_ = format_of(type);
  } else if (PyBool_Check(elements.ptr()) != 0 || !nb::try_cast(elements, its_.element_bytes) ||
             its_.element_bytes == 0 || its_.element_bytes > kMaxUserElementBytes) {
    refuse_reduction("an element is the name of a type, or 1 to " +
                     std::to_string(kMaxUserElementBytes) + " bytes, and not " +
                     described(elements));
  }
  std::uintptr_t address = 0;
  if (PyBool_Check(function_.ptr()) == 0 && nb::isinstance<nb::int_>(function_) &&
      nb::try_cast(function_, address) && address != 0)
    its_ = {name_, its_.element_bytes, reinterpret_cast<UserReduction::Function>(address), nullptr};
  else if (PyCallable_Check(function_.ptr()) == 0)
    refuse_reduction(described(function_) + " is neither a function nor the address of one");
}

nb::object Reduction::view_of(const nb::object& bytes) const {
  nb::object whole = nb::steal(PyMemoryView_FromObject(bytes.ptr()));
  if (!whole.is_valid()) throw nb::python_error();
  return whole.attr("cast")(format_);
}

// The function gets copies, because it may keep what it is given. Several threads may come here at
// once, one after the other by the interpreter's lock.
void Reduction::reduce(const void* in, void* inout, std::size_t count, void* self) {
  const Locked lock;
  if (!lock) throw std::runtime_error("it is a function of Python, and Python has ended");
  const auto& own = *static_cast<const Reduction*>(self);
  const std::size_t bytes = count * own.its_.element_bytes;
  std::string why;
  try {
    if (!own.function_.is_valid()) throw std::runtime_error("its function is gone");
    const nb::bytes left(in, bytes);
    const nb::bytearray right(inout, bytes);
    {
      const Marked marked;
      own.function_(own.view_of(left), own.view_of(right));
    }
    if (right.size() == bytes) {
      std::memcpy(inout, right.c_str(), bytes);
      return;
    }
    why = "it has changed the size of its result";
  } catch (nb::python_error& error) {
    why = why_it_ended(error);
  }
  throw std::runtime_error(why);
}

Reducing::Reducing(nb::handle named) {
  if (nb::isinstance<nb::str>(named)) {
    op = op_of(nb::cast<std::string>(named));
    return;
  }
  const Reduction* reduction = nullptr;
  if (!nb::try_cast(named, reduction) || reduction == nullptr)
    throw Error(ErrorKind::usage,
                "op is the name of a reduction or a tutti.Reduction, and not " + described(named));
  own = &reduction->its();
  object = nb::borrow(named);
}

std::size_t Reducing::elements(const char* what, const Array& array, std::size_t count) const {
  if (own == nullptr) return count;
  const std::size_t bytes = count * size_of(array.type);
  if (bytes % own->element_bytes != 0)
    throw Error(ErrorKind::usage, std::string(what) + ": " + std::to_string(bytes) +
                                      " bytes are no whole number of the reduction's elements of " +
                                      std::to_string(own->element_bytes));
  return bytes / own->element_bytes;
}

void bind_reduction(nb::module_& module) {
  nb::class_<Reduction>(
      module, "Reduction", nb::type_slots(collected<Reduction>),
      "A reduction of the program's own, as the op of a call. `function(left, right)` stores left "
      "op right in `right`, for two memoryviews of some KiB; or it is the "
      "address of a function of C: void f(const void* left, void* right, size_t count, void*), "
      "which any thread may call. The operation is associative and, unless the call names the "
      "algorithm one_shot or all_pairs, commutative.")
      .def(nb::init<std::string, nb::object, const nb::object&>(), nb::arg("name"),
           nb::arg("function"), nb::arg("elements"),
           nb::sig("def __init__(self, name: str, function: "
                   "collections.abc.Callable[[memoryview, memoryview], object] | int, elements: "
                   "str | int) -> None"))
      .def_prop_ro("name", &Reduction::name)
      .def_prop_ro("element_bytes", [](const Reduction& self) { return self.its().element_bytes; })
      .def("__repr__", [](const Reduction& self) { return "<Reduction '" + self.name() + "'>"; });
}

}  // namespace tutti::python
