#include "dlpack.h"

#include <string>

#include <tutti/error.hpp>

namespace tutti::python::dlpack {
namespace {

constexpr const char* kAttribute = "__dlpack_c_exchange_api__";  // It is one of the type.
constexpr const char* kExchange = "dlpack_exchange_api";         // It is the name of its capsule.

// An exception that is no Exception, such as KeyboardInterrupt, is not the object's answer.
std::string answer(const nb::python_error& error) {
  if (!error.matches(PyExc_Exception)) throw;
  return nb::str(error.value()).c_str();
}

bool is_on_gpu(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack_device__")) return false;
  const nb::object device = object.attr("__dlpack_device__")();
  return on_gpu(nb::cast<std::int32_t>(nb::int_(device[0])));
}

}  // namespace

const Exchange* exchange_of(nb::handle object) {
  PyObject* const offered =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())), kAttribute);
  if (offered == nullptr) return PyErr_Clear(), nullptr;
  const auto capsule = nb::steal(offered);
  const auto* table = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), kExchange));
  if (table == nullptr) PyErr_Clear();
  while (table != nullptr && table->version.major != kMajor) table = table->previous;
  return table;
}

nb::object exchanged(const Exchange& table, nb::handle object) {
  Managed* tensor = nullptr;
  if (table.managed_from_object(object.ptr(), &tensor) != 0) return PyErr_Clear(), nb::object();
  PyObject* const capsule = PyCapsule_New(tensor, kManaged, [](PyObject* unused) {
    auto* const left = static_cast<Managed*>(PyCapsule_GetPointer(unused, kManaged));
    if (left == nullptr) return PyErr_Clear();  // the capsule was taken over and renamed
    left->deleter(left);
  });
  if (capsule == nullptr) throw nb::python_error();
  return nb::steal(capsule);
}

nb::object exported(const char* what, nb::handle object, Stream stream) {
  try {
    nb::dict options;
    if (is_on_gpu(object)) options["stream"] = reinterpret_cast<std::uintptr_t>(stream);
    options["max_version"] = nb::make_tuple(kMajor, 0);
    try {
      return object.attr("__dlpack__")(**options);
    } catch (const nb::python_error& error) {  // It may be older than DLPack's versions.
      answer(error);
      PyDict_DelItemString(options.ptr(), "max_version");
      return object.attr("__dlpack__")(**options);
    }
  } catch (const nb::python_error& error) {
    throw Error(ErrorKind::usage,
                std::string(what) + ": the object's __dlpack__() fails: " + answer(error));
  }
}

bool read_only(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kManaged) == 0) return false;
  const auto* tensor = static_cast<const Managed*>(PyCapsule_GetPointer(capsule.ptr(), kManaged));
  return (tensor->flags & kReadOnly) != 0;
}

}  // namespace tutti::python::dlpack
