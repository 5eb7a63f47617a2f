#include "exceptions.h"

#include <utility>

#include <tutti/error.hpp>

namespace tutti::python {
namespace {

// Takes over the string `made`. It may be null, with an exception, and have any characters.
std::string text(PyObject* made, nb::handle object) {
  const nb::object string = nb::steal(made);
  const nb::object bytes = nb::steal(
      made == nullptr ? nullptr : PyUnicode_AsEncodedString(made, "utf-8", "backslashreplace"));
  if (bytes.is_valid()) return PyBytes_AsString(bytes.ptr());
  forget();
  return "an object of type " + name_of_type(object);
}

thread_local Entry* innermost_entry = nullptr;

}  // namespace

Entry::Entry() noexcept : outer_(std::exchange(innermost_entry, this)) {}

Entry::~Entry() { innermost_entry = outer_; }

void Entry::raise() {
  if (kept_) throw nb::python_error(*std::exchange(kept_, std::nullopt));
}

void Entry::keep(nb::python_error&& error) {
  if (innermost_entry == nullptr)
    error.discard_as_unraisable("a function that tutti called");
  else if (!innermost_entry->kept_)
    innermost_entry->kept_.emplace(std::move(error));
}

bool Entry::has_kept() { return innermost_entry != nullptr && innermost_entry->kept_.has_value(); }

void forget() {
  if (PyErr_Occurred() == nullptr) return;
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw nb::python_error();
  PyErr_Clear();
}

std::string reason() {
  if (PyErr_Occurred() == nullptr) return "no reason is given";
  return reason(nb::python_error());
}

std::string reason(const nb::python_error& error) {
  if (!error.matches(PyExc_Exception)) throw nb::python_error(error);
  const nb::handle value = error.value();
  return text(PyObject_Str(value.ptr()), value);
}

std::string why_it_ended(nb::python_error& error) {
  if (error.matches(PyExc_Exception)) return name_of_type(error.value()) + ": " + reason(error);
  Entry::keep(std::move(error));
  return "it was interrupted";
}

std::string described(nb::handle object) { return text(PyObject_Repr(object.ptr()), object); }

std::string name_of_type(nb::handle object) { return nb::type_name(object.type()).c_str(); }

nb::object attribute(const char* what, nb::handle object, const char* name) {
  PyObject* const found = PyObject_GetAttrString(object.ptr(), name);
  if (found == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError) == 0)
    throw Error(ErrorKind::usage,
                std::string(what) + ": the object's " + name + " fails: " + reason());
  if (found == nullptr) PyErr_Clear();
  return nb::steal(found);
}

}  // namespace tutti::python
