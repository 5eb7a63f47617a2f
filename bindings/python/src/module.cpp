// tutti._core: the compiled part of the package.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <tutti/launch.hpp>
#include <tutti/tutti.hpp>

#include "communicator.h"
#include "reducing.h"

namespace tutti::python {
namespace {

// Raises the class of tutti/errors.py that belongs to the error's kind.
void raise(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object type =
        nb::module_::import_("tutti.errors").attr("BY_KIND")[to_string(error.kind()).data()];
    PyErr_SetString(type.ptr(), error.what());
  }
}

}  // namespace

NB_MODULE(_core, module) {
  nb::register_exception_translator(&raise);
  // The garbage collector does not see the objects that a call under way uses, so that they may
  // outlive the interpreter together with the call.
  nb::set_leak_warnings(false);
  module.def("version", [] { return std::string(version()); });
  module.def("launched", &launched,
             "Returns whether a launcher has started this process as one of its ranks.");
  module.def("newcomer", &newcomer,
             "Returns whether this process is to come to a running job by Communicator.join().");
  module.attr("ANY_SOURCE") = kAnySource;
  module.attr("ANY_TAG") = kAnyTag;
  module.attr("NO_COLOR") = kNoColor;
  bind_reduction(module);
  bind_schedules(module);
  bind_prices(module);
  bind_communicator(module);
  bind_buffer(module);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&await_threads));
}

}  // namespace tutti::python
