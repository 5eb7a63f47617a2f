#include "array.h"

#include <iterator>
#include <string>
#include <utility>

#include <tutti/error.hpp>

#include "dlpack.h"

namespace tutti::python {
namespace {

[[noreturn]] void refuse(const char* what, const std::string& why) {
  throw Error(ErrorKind::usage, std::string(what) + ": " + why);
}

enum class Kind { integer, natural, real, brain, complex, boolean, f8e4m3, f8e5m2, none };

struct Row {
  Kind kind;
  std::size_t bytes;
  DataType type;
};
constexpr Row kRows[] = {
    {Kind::integer, 1, DataType::int8},      {Kind::integer, 2, DataType::int16},
    {Kind::integer, 4, DataType::int32},     {Kind::integer, 8, DataType::int64},
    {Kind::natural, 1, DataType::uint8},     {Kind::natural, 2, DataType::uint16},
    {Kind::natural, 4, DataType::uint32},    {Kind::natural, 8, DataType::uint64},
    {Kind::real, 2, DataType::f16},          {Kind::real, 4, DataType::f32},
    {Kind::real, 8, DataType::f64},          {Kind::brain, 2, DataType::bf16},
    {Kind::complex, 8, DataType::complex64}, {Kind::complex, 16, DataType::complex128},
    {Kind::boolean, 1, DataType::boolean},   {Kind::f8e4m3, 1, DataType::f8e4m3},
    {Kind::f8e5m2, 1, DataType::f8e5m2},
};
static_assert(std::size(kRows) == kDataTypes, "a data type is missing here");

std::optional<DataType> type_of(Kind kind, std::size_t bytes) {
  for (const Row& row : kRows)
    if (row.kind == kind && row.bytes == bytes) return row.type;
  return std::nullopt;
}

// Understands the letters of the struct module. NumPy writes a complex number as Z and the letter
// of its parts.
Kind kind_of_format(const char* format) {
  if (format == nullptr) return Kind::natural;
  std::string_view letters(format);
  if (!letters.empty() && std::string_view("@=<").find(letters.front()) != letters.npos)
    letters.remove_prefix(1);
  if (letters.size() == 2 && letters.front() == 'Z') return Kind::complex;
  if (letters.size() != 1) return Kind::none;
  if (letters == "?") return Kind::boolean;
  if (std::string_view("bhilqn").find(letters) != letters.npos) return Kind::integer;
  if (std::string_view("cBHILQN").find(letters) != letters.npos) return Kind::natural;
  return std::string_view("efd").find(letters) != letters.npos ? Kind::real : Kind::none;
}

// Understands DLPack's type codes.
Kind kind_of_code(std::uint8_t code) {
  switch (code) {
    case 0: return Kind::integer;
    case 1: return Kind::natural;
    case 2: return Kind::real;
    case 4: return Kind::brain;
    case 5: return Kind::complex;
    case 6: return Kind::boolean;
    case 10: return Kind::f8e4m3;
    case 12: return Kind::f8e5m2;
    default: return Kind::none;
  }
}

const dlpack::Exchange* exchange_of(PyTypeObject* type) {
  PyObject* const offered =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), dlpack::kAttribute);
  if (offered == nullptr) return PyErr_Clear(), nullptr;
  const auto capsule = nb::steal(offered);
  const auto* table =
      static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::kExchange));
  if (table == nullptr) PyErr_Clear();
  while (table != nullptr && table->version.major != dlpack::kMajor) table = table->previous;
  return table;  // it lives as long as the process
}

// Exports the object's tensor with DLPack's C functions, which takes a tenth of the time of
// __dlpack__(), and returns a capsule like that of __dlpack__(). Returns the object itself if its
// type does not offer these functions.
nb::object exchanged(nb::handle object) {
  const dlpack::Exchange* table = exchange_of(Py_TYPE(object.ptr()));
  dlpack::Managed* tensor = nullptr;
  if (table == nullptr) return nb::borrow(object);
  if (table->managed_from_object(object.ptr(), &tensor) != 0)
    return PyErr_Clear(), nb::borrow(object);  // __dlpack__() reports the reason
  PyObject* const capsule = PyCapsule_New(tensor, dlpack::kManaged, [](PyObject* unused) {
    auto* const left =
        static_cast<dlpack::Managed*>(PyCapsule_GetPointer(unused, dlpack::kManaged));
    if (left == nullptr) return PyErr_Clear();  // the capsule was taken over and renamed
    left->deleter(left);
  });
  if (capsule == nullptr) throw nb::python_error();
  return nb::steal(capsule);
}

constexpr const char* kOnePiece =
    "the array's elements do not lie one behind the other: give a contiguous one";

}  // namespace

Array::Array(const char* what, nb::handle object, bool writes) : Array() {
  if (PyObject_CheckBuffer(object.ptr()) != 0)
    from_buffer(what, object, writes);
  else
    from_dlpack(what, object);
}

void Array::from_buffer(const char* what, nb::handle object, bool writes) {
  const int flags = PyBUF_FORMAT | PyBUF_STRIDES | (writes ? PyBUF_WRITABLE : 0);
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, flags) != 0) {
    PyErr_Clear();
    refuse(what, "the object's buffer cannot be used: is it read-only?");
  }
  view_ = view;  // from here on the destructor releases it
  if (PyBuffer_IsContiguous(&view, 'C') == 0) refuse(what, kOnePiece);
  const auto element = static_cast<std::size_t>(view.itemsize);
  const auto found = type_of(kind_of_format(view.format), element);
  if (!found)
    refuse(what,
           "tutti has no type for elements of the format \"" + std::string(view.format) + "\"");
  data = view.buf;
  type = *found;
  count = static_cast<std::size_t>(view.len) / element;
}

void Array::from_dlpack(const char* what, nb::handle object) {
  nb::ndarray<nb::ro> tensor;
  if (!nb::try_cast(exchanged(object), tensor, false))
    refuse(what,
           "takes an object with the buffer protocol or DLPack (an array of NumPy, PyTorch, "
           "JAX, …), and got one of type " +
               std::string(nb::type_name(object.type()).c_str()));
  if (tensor.device_type() != nb::device::cpu::value)
    refuse(what, "the array is in a device's memory, and tutti moves the host's");
  std::int64_t expected = 1;
  for (std::size_t k = tensor.ndim(); k-- > 0;) {
    if (tensor.shape(k) > 1 && tensor.stride(k) != expected) refuse(what, kOnePiece);
    expected *= static_cast<std::int64_t>(tensor.shape(k));
  }
  const auto found = type_of(kind_of_code(tensor.dtype().code), tensor.itemsize());
  if (!found || tensor.dtype().lanes != 1) refuse(what, "tutti has no type for its elements");
  data = const_cast<void*>(tensor.data());
  count = tensor.size();
  type = *found;
  tensor_ = std::move(tensor);
}

Array::Array(Array&& other) noexcept { *this = std::move(other); }

Array& Array::operator=(Array&& other) noexcept {
  std::swap(data, other.data);
  std::swap(count, other.count);
  std::swap(type, other.type);
  std::swap(view_, other.view_);
  std::swap(tensor_, other.tensor_);
  return *this;
}

Array::~Array() {
  if (view_) PyBuffer_Release(&*view_);
}

}  // namespace tutti::python
