// Exceptions of Python as the answers of a program's objects. One that is no Exception, such as
// KeyboardInterrupt, is never an answer: the functions here throw it on, but for why_it_ended().
#pragma once

#include <string>

#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// Drops the exception that is set, if there is one.
void forget();
/// Drops the exception that is set, and returns what it says.
std::string reason();
/// Returns what the exception says.
std::string reason(const nb::python_error& error);
/// Returns what the exception is and says, which has ended a function that tutti called. One that
/// is no Exception, such as KeyboardInterrupt, is set again for the caller of tutti, who raises it.
std::string why_it_ended(nb::python_error& error);
/// Returns repr(object), for error messages.
std::string described(nb::handle object);
/// Returns the name of the object's type.
std::string name_of_type(nb::handle object);

/// Returns the attribute, or an invalid object if there is none. Throws `usage`, with `what`, if
/// another exception than AttributeError says so.
nb::object attribute(const char* what, nb::handle object, const char* name);

}  // namespace tutti::python
