// tutti._torch: the extension that tutti/torch.py registers with torch.distributed.
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <pybind11/chrono.h>

#include <mutex>
#include <vector>

#include "backend.h"

namespace tutti::pytorch {
namespace {

/// Makes backends, and shuts down those that are left when the interpreter ends, since a call that
/// ends after that could no longer free a tensor.
class Backends {
 public:
  c10::intrusive_ptr<Backend> make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                   std::chrono::milliseconds timeout) {
    auto made = c10::make_intrusive<Backend>(store, rank, size, timeout);
    const std::lock_guard lock(mutex_);
    std::erase_if(alive_, [](const auto& each) { return each.expired(); });
    alive_.emplace_back(made);
    return made;
  }

  void shutdown() {
    std::vector<c10::weak_intrusive_ptr<Backend>> last;
    {
      const std::lock_guard lock(mutex_);
      last.swap(alive_);
    }
    for (const auto& each : last)
      if (const auto backend = each.lock()) backend->shutdown();
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<Backend>> alive_;  // guarded by mutex_
};

}  // namespace

PYBIND11_MODULE(_torch, module) {
  namespace py = pybind11;
  py::module_::import("torch.distributed");  // registers its types
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend");
  py::class_<Backends>(module, "Backends")
      .def(py::init())
      .def("make", &Backends::make, py::arg("store"), py::arg("rank"), py::arg("size"),
           py::arg("timeout"), py::call_guard<py::gil_scoped_release>())
      .def("shutdown", &Backends::shutdown, py::call_guard<py::gil_scoped_release>());
}

}  // namespace tutti::pytorch
