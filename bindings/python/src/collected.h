// Classes whose objects may be part of circles of references, which Python's garbage collector
// finds.
#pragma once

#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// The slots of a class with traverse(visit, arg) and clear() for Python's garbage collector.
template <typename Collected>
inline PyType_Slot collected[] = {
    {Py_tp_traverse,
     reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) -> int {
       Py_VISIT(Py_TYPE(self));
       return nb::inst_ready(self) ? nb::inst_ptr<Collected>(self)->traverse(visit, arg) : 0;
     })},
    {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) -> int {
       if (nb::inst_ready(self)) nb::inst_ptr<Collected>(self)->clear();
       return 0;
     })},
    {0, nullptr}};

}  // namespace tutti::python
