// Binds tutti::Buffer as a Python object with the buffer protocol.
#include "communicator.h"

namespace tutti::python {
namespace {

int export_memory(PyObject* self, Py_buffer* view, int flags) {
  const auto* buffer = nb::inst_ptr<tutti::Buffer>(self);
  return PyBuffer_FillInfo(view, self, buffer->data(), static_cast<Py_ssize_t>(buffer->bytes()), 0,
                           flags);
}

const PyType_Slot kProtocol[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&export_memory)},
                                 {0, nullptr}};

}  // namespace

void bind_buffer(nb::module_& module) {
  nb::class_<tutti::Buffer>(module, "Buffer", nb::type_slots(kProtocol))
      .def(
          "__init__",
          [](tutti::Buffer* self, const Communicator& communicator, std::size_t bytes) {
            tutti::Communicator& comm = communicator.get();
            const Unlocked unlocked;
            new (self) tutti::Buffer(tutti::Buffer::allocate(comm, bytes));
          },
          nb::arg("communicator"), nb::arg("bytes"))
      .def("__len__", &tutti::Buffer::bytes)
      .def_prop_ro("shared", &tutti::Buffer::shared);
}

}  // namespace tutti::python
