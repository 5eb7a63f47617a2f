#include "dlpack.h"

#include <string>

#include <tutti/error.hpp>

#include "exceptions.h"

namespace tutti::python::dlpack {
namespace {

constexpr const char* kAttribute = "__dlpack_c_exchange_api__";  // It is one of the type.
constexpr const char* kExchange = "dlpack_exchange_api";         // It is the name of its capsule.

bool is_on_gpu(const char* what, nb::handle object) {
  const nb::object method = attribute(what, object, "__dlpack_device__");
  if (!method.is_valid()) return false;
  std::string why = "its first entry is not the number of a type";
  try {
    std::int32_t type = 0;
    if (nb::try_cast(nb::int_(method()[0]), type)) return on_gpu(type);
  } catch (const nb::python_error& error) {
    why = reason(error);
  }
  throw Error(ErrorKind::usage,
              std::string(what) + ": the object's __dlpack_device__() returns no device: " + why);
}

nb::object capsule_of(const char* what, nb::object returned) {
  if (PyCapsule_CheckExact(returned.ptr()) == 0)
    throw Error(ErrorKind::usage, std::string(what) +
                                      ": the object's __dlpack__() returns an object of type " +
                                      name_of_type(returned) + ", and is to return a capsule");
  return returned;
}

}  // namespace

const Exchange* exchange_of(nb::handle object) {
  PyObject* const offered =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())), kAttribute);
  if (offered == nullptr) return forget(), nullptr;
  const auto capsule = nb::steal(offered);
  if (PyCapsule_IsValid(capsule.ptr(), kExchange) == 0) return nullptr;
  const auto* table = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), kExchange));
  while (table != nullptr && table->version.major != kMajor) table = table->previous;
  const bool complete =
      table != nullptr && table->managed_from_object != nullptr && table->current_stream != nullptr;
  return complete ? table : nullptr;
}

nb::object exchanged(const Exchange& table, nb::handle object) {
  Managed* tensor = nullptr;
  if (table.managed_from_object(object.ptr(), &tensor) != 0) tensor = nullptr;
  if (tensor == nullptr) return forget(), nb::object();
  PyObject* const capsule = PyCapsule_New(tensor, kManaged, [](PyObject* unused) {
    auto* const left = static_cast<Managed*>(PyCapsule_GetPointer(unused, kManaged));
    if (left == nullptr) return PyErr_Clear();  // the capsule was taken over and renamed
    if (left->deleter != nullptr) left->deleter(left);
  });
  if (capsule == nullptr) throw nb::python_error();
  return nb::steal(capsule);
}

nb::object exported(const char* what, nb::handle object, Stream stream) {
  try {
    nb::dict options;
    if (is_on_gpu(what, object)) options["stream"] = reinterpret_cast<std::uintptr_t>(stream);
    options["max_version"] = nb::make_tuple(kMajor, 0);
    try {
      return capsule_of(what, object.attr("__dlpack__")(**options));
    } catch (const nb::python_error& error) {  // It may be older than DLPack's versions.
      if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_BufferError)) throw;
      PyDict_DelItemString(options.ptr(), "max_version");
      return capsule_of(what, object.attr("__dlpack__")(**options));
    }
  } catch (const nb::python_error& error) {
    throw Error(ErrorKind::usage,
                std::string(what) + ": the object's __dlpack__() fails: " + reason(error));
  }
}

const Managed* managed_of(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kManaged) == 0) return nullptr;
  return static_cast<const Managed*>(PyCapsule_GetPointer(capsule.ptr(), kManaged));
}

}  // namespace tutti::python::dlpack
