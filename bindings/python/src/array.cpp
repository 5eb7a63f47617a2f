#include "array.h"

#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>

#include <tutti/error.hpp>

#include "dlpack.h"
#include "elements.h"
#include "exceptions.h"

namespace tutti::python {
namespace {

constexpr const char* kOnePiece =
    "the array's elements do not lie one behind the other: give a contiguous one";
constexpr const char* kShape = "the array has a shape that no memory can have";
constexpr const char* kReadOnly = "the array is read-only, and the call writes to it";

[[noreturn]] void refuse(const char* what, const std::string& why) {
  throw Error(ErrorKind::usage, std::string(what) + ": " + why);
}

// `elements` says of which elements the array consists.
[[noreturn]] void refuse_elements(const char* what, const std::string& elements) {
  refuse(what,
         "tutti has no type for " + elements +
             ": to move their bytes, or to reduce them by a tutti.Reduction, give the array's "
             "bytes, as array.view(numpy.uint8)");
}

[[noreturn]] void refuse_object(const char* what, nb::handle object) {
  refuse(what,
         "takes an object with the buffer protocol, DLPack or the CUDA array interface (an array "
         "of NumPy, PyTorch, JAX, CuPy, …), and got one of type " +
             name_of_type(object));
}

// Steps over the dimensions of an array, from the last to the first, and tells whether its elements
// lie one behind the other.
class Layout {
 public:
  // An element has `bytes` bytes, and the stride from one to the next is `step`, at most `bytes`.
  Layout(std::size_t bytes, std::int64_t step)
      : element_(static_cast<std::int64_t>(bytes)), step_(step) {}
  void dimension(std::int64_t length, std::optional<std::int64_t> stride) {
    std::int64_t bytes = 0;
    contiguous_ =
        contiguous_ && (length <= 1 || !stride || !possible_ || *stride == count_ * step_);
    possible_ = possible_ && length >= 0 && !__builtin_mul_overflow(count_, length, &count_) &&
                !__builtin_mul_overflow(count_, element_, &bytes);
  }
  // Refuses what cannot be a buffer, and returns the number of the elements.
  std::size_t checked_count(const char* what) const {
    if (!possible_) refuse(what, kShape);
    if (!contiguous_ && count_ != 0) refuse(what, kOnePiece);
    return static_cast<std::size_t>(count_);
  }

 private:
  std::int64_t element_, step_, count_ = 1;
  bool contiguous_ = true, possible_ = true;
};

// Holds what the CUDA array interface says of an array.
struct Description {
  std::string typestr;
  std::vector<std::int64_t> shape;
  std::optional<std::vector<std::int64_t>> strides;  // They are in bytes.
  std::uintptr_t address = 0;
  bool read_only = false;
  bool masked = false;
  nb::object stream;
};

// Calls the object's __index__(), whose exceptions a cast would drop.
template <typename Integer>
Integer integer_of(nb::handle object) {
  if (PyIndex_Check(object.ptr()) == 0) throw std::bad_cast();
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  return nb::cast<Integer>(index);
}

bool is_true(nb::handle object) {
  const int truth = PyObject_IsTrue(object.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

// Returns an invalid object if there is none, or if it fails and the object has DLPack as well.
nb::object cuda_interface_of(const char* what, nb::handle object) {
  try {
    return attribute(what, object, "__cuda_array_interface__");
  } catch (const Error&) {
    if (attribute(what, object, "__dlpack__").is_valid()) return {};
    throw;
  }
}

std::optional<Description> description_of(const char* what, nb::handle object) {
  const nb::object interface = cuda_interface_of(what, object);
  if (!interface.is_valid()) return std::nullopt;
  const auto refuse_entries = [what](const std::string& why) {
    refuse(what, "the object's __cuda_array_interface__ is not what that interface says: " + why);
  };
  const auto optional_entry = [&](const char* key) -> nb::object {
    return interface.attr("get")(key);
  };
  try {
    const auto strides = optional_entry("strides");
    const nb::object address = interface["data"];
    Description described;
    described.typestr = nb::cast<std::string>(interface["typestr"]);
    for (const nb::handle length : interface["shape"])
      described.shape.push_back(integer_of<std::int64_t>(length));
    if (!strides.is_none()) {
      described.strides.emplace();
      for (const nb::handle stride : strides)
        described.strides->push_back(integer_of<std::int64_t>(stride));
      if (described.strides->size() != described.shape.size())
        refuse_entries("shape and strides differ in length");
    }
    described.address = integer_of<std::uintptr_t>(address[0]);
    described.read_only = is_true(address[1]);
    described.masked = !optional_entry("mask").is_none();
    described.stream = optional_entry("stream");
    return described;
  } catch (const nb::python_error& error) {
    refuse_entries(reason(error));
  } catch (const std::bad_cast&) {
    refuse_entries("an entry has another type");
  }
  return std::nullopt;
}

}  // namespace

// Once Array() has returned, the destructor runs if an array is refused.
Array::Array(const char* what, nb::handle object, bool writes, Stream named) : Array() {
  if (PyObject_CheckBuffer(object.ptr()) != 0)
    from_buffer(what, object, writes);
  else if (!from_exchange(what, object, writes) && !from_cuda_interface(what, object, writes))
    from_method(what, object, writes, named);
}

void Array::from_buffer(const char* what, nb::handle object, bool writes) {
  const int flags = PyBUF_FORMAT | PyBUF_STRIDES | (writes ? PyBUF_WRITABLE : 0);
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, flags) != 0)
    refuse(what,
           "the object's buffer cannot be used: is it read-only, or has it elements that buffers "
           "cannot have? Then give their bytes, as array.view(numpy.uint8). It says: " +
               reason());
  view_ = view;  // from here on the destructor releases it
  if (PyBuffer_IsContiguous(&view, 'C') == 0) refuse(what, kOnePiece);
  const auto element = static_cast<std::size_t>(view.itemsize);
  const auto found = type_of_format(view.format, element);
  if (!found) refuse_elements(what, "elements of the format \"" + std::string(view.format) + "\"");
  data = view.buf;
  type = *found;
  count = static_cast<std::size_t>(view.len) / element;
}

bool Array::from_exchange(const char* what, nb::handle object, bool writes) {
  const dlpack::Exchange* const table = dlpack::exchange_of(object);
  const nb::object capsule = table == nullptr ? nb::object() : dlpack::exchanged(*table, object);
  if (!capsule.is_valid()) return false;
  from_dlpack(what, capsule, writes);
  if (!on_gpu) return true;
  void* current = nullptr;
  if (table->current_stream(tensor_->device_type(), tensor_->device_id(), &current) != 0)
    refuse(what, "the array's library does not tell its stream: " + reason());
  stream = stream_with(reinterpret_cast<std::uintptr_t>(current));
  return true;
}

void Array::from_method(const char* what, nb::handle object, bool writes, Stream named) {
  if (!attribute(what, object, "__dlpack__").is_valid()) return from_dlpack(what, object, writes);
  const Stream wanted = named != nullptr ? named : stream_with(0);
  from_dlpack(what, dlpack::exported(what, object, wanted), writes);
  if (on_gpu) stream = wanted;
}

void Array::from_dlpack(const char* what, nb::handle capsule, bool writes) {
  nb::ndarray<nb::ro> tensor;
  const dlpack::Managed* const managed = dlpack::managed_of(capsule);
  if (managed != nullptr && managed->version.major != dlpack::kMajor)
    refuse(what, "the array comes in the version " + std::to_string(managed->version.major) +
                     " of DLPack, and tutti knows version " + std::to_string(dlpack::kMajor));
  const std::uint64_t flags = managed == nullptr || !writes ? 0 : managed->flags;
  if (!nb::try_cast(capsule, tensor, false)) refuse_object(what, capsule);
  on_gpu = dlpack::on_gpu(tensor.device_type());
  if (!on_gpu && tensor.device_type() != dlpack::kHost && tensor.device_type() != dlpack::kPinned)
    refuse(what, "the array is in the memory of a device that DLPack gives the number " +
                     std::to_string(tensor.device_type()) +
                     ", and tutti moves the host's memory and that of CUDA's GPUs");
  if ((flags & dlpack::kReadOnly) != 0) refuse(what, kReadOnly);
  if ((flags & dlpack::kCopied) != 0)
    refuse(what, "the object's __dlpack__() has made a copy, and the result would be lost");
  const auto found = type_of_code(tensor.dtype().code, tensor.itemsize());
  if (!found || tensor.dtype().lanes != 1 || tensor.dtype().bits != 8 * tensor.itemsize())
    refuse_elements(what, "its elements");
  Layout layout(tensor.itemsize(), 1);
  for (std::size_t k = tensor.ndim(); k-- > 0;)
    layout.dimension(static_cast<std::int64_t>(tensor.shape(k)), tensor.stride(k));
  count = layout.checked_count(what);
  data = const_cast<void*>(tensor.data());
  type = *found;
  tensor_ = std::move(tensor);
}

bool Array::from_cuda_interface(const char* what, nb::handle object, bool writes) {
  const auto described = description_of(what, object);
  if (!described) return false;
  const auto found = type_of_typestr(described->typestr);
  if (!found && attribute(what, object, "__dlpack__").is_valid()) return false;
  if (!found) refuse_elements(what, "elements of the format \"" + described->typestr + "\"");
  if (described->masked) refuse(what, "the array has a mask, and tutti moves arrays without one");
  if (writes && described->read_only) refuse(what, kReadOnly);
  Layout layout(size_of(*found), static_cast<std::int64_t>(size_of(*found)));
  for (std::size_t k = described->shape.size(); k-- > 0;)
    layout.dimension(described->shape[k],
                     described->strides ? std::optional((*described->strides)[k]) : std::nullopt);
  count = layout.checked_count(what);
  data = reinterpret_cast<void*>(described->address);
  type = *found;
  on_gpu = true;
  stream = stream_of_handle(described->stream);
  owner_ = nb::borrow(object);
  return true;
}

Array::Array(Array&& other) noexcept { *this = std::move(other); }

Array& Array::operator=(Array&& other) noexcept {
  std::swap(data, other.data);
  std::swap(count, other.count);
  std::swap(type, other.type);
  std::swap(on_gpu, other.on_gpu);
  std::swap(stream, other.stream);
  std::swap(view_, other.view_);
  std::swap(tensor_, other.tensor_);
  std::swap(owner_, other.owner_);
  return *this;
}

Array::~Array() {
  if (view_) PyBuffer_Release(&*view_);
}

}  // namespace tutti::python
