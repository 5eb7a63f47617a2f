// Exceptions of Python as the answers of a program's objects. One that is no Exception, such as
// KeyboardInterrupt, is never an answer: the functions here throw it on, but for why_it_ended().
#pragma once

#include <optional>
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
/// A call by which Python has entered tutti, from its beginning to its end. An exception that is an
/// interrupt (KeyboardInterrupt, or what a handler of a signal has raised) waits here until the
/// call ends, because nothing of Python may run while an exception is set. The interpreter's lock
/// must be held to make and to destroy one, and for all its functions.
class Entry {
 public:
  Entry() noexcept;
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  /// Throws the exception that waits, if there is one.
  void raise();

  /// Has an exception wait in the innermost entry of this thread, unless one waits there already.
  /// If there is none, it is reported as one that nobody can raise.
  static void keep(nb::python_error&& error);
  /// Returns whether an exception waits in the innermost entry of this thread.
  static bool has_kept();

 private:
  Entry* const outer_;
  std::optional<nb::python_error> kept_;
};

/// Returns what the exception is and says, which has ended a function that tutti called. One that
/// is no Exception waits in the innermost Entry.
std::string why_it_ended(nb::python_error& error);
/// Returns repr(object), for error messages.
std::string described(nb::handle object);
/// Returns the name of the object's type.
std::string name_of_type(nb::handle object);

/// Returns the attribute, or an invalid object if there is none. Throws `usage`, with `what`, if
/// another exception than AttributeError says so.
nb::object attribute(const char* what, nb::handle object, const char* name);

}  // namespace tutti::python
