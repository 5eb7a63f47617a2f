// Binds memory with which a communicator's peers or devices work: tutti::Buffer as an object with
// the buffer protocol, and tutti::RegisteredMemory for an array of the program.
#include <optional>
#include <utility>

#include "array.h"
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

/// Keeps the array alive as long as the registration of its memory.
class RegisteredMemory {
 public:
  RegisteredMemory(const Communicator& communicator, nb::handle array)
      : array_("RegisteredMemory", array, true, nullptr) {
    if (array_.on_gpu)
      throw Error(ErrorKind::usage, "RegisteredMemory: the array is in the memory of a GPU");
    const Communicator::InCall in_call(communicator);
    const std::size_t bytes = array_.count * size_of(array_.type);
    const Unlocked unlocked;
    memory_ = tutti::RegisteredMemory::of(in_call.communicator(), array_.data, bytes);
  }
  ~RegisteredMemory() { end(); }

  bool used() const { return memory_ && memory_->used(); }
  void end() {
    // Another thread may call this while the interpreter's lock is released.
    std::optional<tutti::RegisteredMemory> last = std::exchange(memory_, std::nullopt);
    if (!last) return;
    const Unlocked unlocked;
    last.reset();
  }

 private:
  Array array_;
  std::optional<tutti::RegisteredMemory> memory_;
};

}  // namespace

void bind_buffer(nb::module_& module) {
  nb::class_<tutti::Buffer>(module, "Buffer", nb::type_slots(kProtocol))
      .def(
          "__init__",
          [](tutti::Buffer* self, const Communicator& communicator, std::size_t bytes) {
            const Communicator::InCall in_call(communicator);
            const Unlocked unlocked;
            new (self) tutti::Buffer(tutti::Buffer::allocate(in_call.communicator(), bytes));
          },
          nb::arg("communicator"), nb::arg("bytes"))
      .def("__len__", &tutti::Buffer::bytes)
      .def_prop_ro("shared", &tutti::Buffer::shared);
  nb::class_<RegisteredMemory>(module, "RegisteredMemory")
      .def(nb::init<const Communicator&, nb::handle>(), nb::arg("communicator"), nb::arg("array"))
      .def_prop_ro("used", &RegisteredMemory::used)
      .def("close", &RegisteredMemory::end)
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](RegisteredMemory& self, const nb::args&) { self.end(); });
}

}  // namespace tutti::python
