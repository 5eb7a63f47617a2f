// Reductions of the program's own, and those that the op of a call names.
#pragma once

#include <cstddef>
#include <string>

#include <nanobind/nanobind.h>

#include <tutti/reduction.hpp>
#include <tutti/types.hpp>

#include "array.h"
#include "communicator.h"

namespace tutti::python {

namespace nb = nanobind;

/// A reduction of the program's own: a function of Python, or the address of one of C. The
/// interpreter's lock must be held to create and destroy it.
class Reduction {
 public:
  /// `elements` is the name of a type, or the number of an element's bytes. `function` is an
  /// address, or is called with two memoryviews, and stores left op right in the right one. Throws
  /// `usage` for anything else.
  Reduction(std::string name, nb::object function, const nb::object& elements);
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  /// Valid as long as this object.
  const UserReduction& its() const noexcept { return its_; }
  const std::string& name() const noexcept { return name_; }

  /// For Python's garbage collector, which finds references in circles.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(function_.ptr());
    return 0;
  }
  void clear() { function_.reset(); }

 private:
  /// Is called as a UserReduction::Function whose context is this object.
  static void reduce(const void* in, void* inout, std::size_t count, void* self);
  nb::object view_of(const nb::object& bytes) const;

  const std::string name_;
  nb::object function_;
  const char* format_ = "B";  // of the elements of the views, as in the struct module
  UserReduction its_;
};

/// Reads the argument `op` of a call, which is the name of a reduction, or a Reduction.
class Reducing {
 public:
  /// Throws `usage` for another object, or a name that is none.
  explicit Reducing(nb::handle op);

  Op op = Op::sum;
  /// Null if the type and op of the call say how to reduce.
  const UserReduction* own = nullptr;
  nb::object object = {};  ///< Keeps the Reduction, where there is one.

  /// Returns `others`, completed by the reduction.
  Options options(Options others) const {
    others.reduction = own;
    others.kept_reduction = object;
    return others;
  }
  /// Returns how many elements of the reduction `count` elements of the array's type are. Throws
  /// `usage` if that is no whole number.
  std::size_t elements(const char* what, const Array& array, std::size_t count) const;
};

void bind_reduction(nb::module_& module);

}  // namespace tutti::python
