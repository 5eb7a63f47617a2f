#include "streams.h"

#include <dlfcn.h>

#include <string>

#include <tutti/error.hpp>

#include "array.h"
#include "exceptions.h"

namespace tutti::python {
namespace {

constexpr std::uintptr_t kDefaultStream = 1, kLastDefaultStream = 2;

// Finds functions of the CUDA driver that the program has loaded, by the driver's own means.
class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    if (library_ != nullptr)
      find_ = reinterpret_cast<Find*>(dlsym(library_, "cuGetProcAddress_v2"));
  }
  ~Driver() {
    if (library_ != nullptr) dlclose(library_);
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Calls the driver's function `name`. Throws `unavailable` if it fails, or if there is none.
  template <typename... Each>
  void call(const char* name, Each... arguments) const {
    constexpr int kInterfaceVersion = 12000;
    void* found = nullptr;
    if (find_ == nullptr || find_(name, &found, kInterfaceVersion, 0, nullptr) != 0 ||
        found == nullptr)
      throw Error(ErrorKind::unavailable,
                  "a CUDA stream is to wait for another one, but this process has loaded no CUDA "
                  "driver (libcuda.so.1 of CUDA 12 or later) that has " +
                      std::string(name) + "()");
    const int result = reinterpret_cast<int (*)(Each...)>(found)(arguments...);
    if (result != 0)
      throw Error(ErrorKind::unavailable,
                  "a CUDA stream cannot wait for another one: the driver's " + std::string(name) +
                      "() returns the error " + std::to_string(result));
  }

 private:
  using Find = int(const char* name, void** function, int version, std::uint64_t flags,
                   int* status);

  void* const library_;
  Find* find_ = nullptr;
};

bool is_default(Stream stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= kLastDefaultStream;
}

// A default stream is that of the current context, which is therefore the other stream's.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, Stream first, Stream second) : driver_(driver) {
    const Stream own = is_default(first) ? second : first;
    if (is_default(own)) return;
    void* context = nullptr;
    driver.call("cuStreamGetCtx", own, &context);
    driver.call("cuCtxPushCurrent", context);
    pushed_ = true;
  }
  ~CurrentContext() {
    if (!pushed_) return;
    try {
      void* context = nullptr;
      driver_.call("cuCtxPopCurrent", &context);
    } catch (const Error&) {  // A driver that fails here has failed in every call.
    }
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

// Lets what `later` is given from now on wait for what `earlier` has been given. The default
// streams wait for each other by themselves.
void wait_for(Stream later, Stream earlier) {
  if (is_default(later) && is_default(earlier)) return;
  constexpr unsigned kNoTiming = 2;
  const Driver driver;
  const CurrentContext current(driver, earlier, later);
  void* event = nullptr;
  driver.call("cuEventCreate", &event, kNoTiming);
  try {
    driver.call("cuEventRecord", event, earlier);
    driver.call("cuStreamWaitEvent", later, event, 0u);
  } catch (const Error&) {
    driver.call("cuEventDestroy", event);
    throw;
  }
  driver.call("cuEventDestroy", event);  // The streams keep what they need of it.
}

std::string number_of(Stream stream) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(stream));
}

Stream stream_with_integer(nb::handle handle) {
  if (PyIndex_Check(handle.ptr()) != 0 && PyBool_Check(handle.ptr()) == 0) {
    const nb::object index = nb::steal(PyNumber_Index(handle.ptr()));
    const std::size_t number = index.is_valid() ? PyLong_AsSize_t(index.ptr()) : 0;
    if (PyErr_Occurred() == nullptr) return stream_with(number);
    forget();
  }
  throw Error(ErrorKind::usage, "stream: " + described(handle) + " is no handle of a CUDA stream");
}

// Calls __cuda_stream__(), or takes it for what that returns.
Stream stream_of_protocol(const nb::object& protocol) {
  nb::object told = protocol;
  try {
    if (PyCallable_Check(protocol.ptr()) != 0) told = protocol();
  } catch (const nb::python_error& error) {
    throw Error(ErrorKind::usage, "stream: the object's __cuda_stream__() fails: " + reason(error));
  }
  if (PyTuple_Check(told.ptr()) != 0 && PyTuple_Size(told.ptr()) == 2)
    return stream_with_integer(PyTuple_GetItem(told.ptr(), 1));
  throw Error(
      ErrorKind::usage,
      "stream: the object's __cuda_stream__() is to return a version and a handle, and returns " +
          described(told));
}

}  // namespace

Stream stream_with(std::uintptr_t handle) noexcept {
  return reinterpret_cast<Stream>(handle == 0 ? kDefaultStream : handle);
}

Stream stream_of_handle(nb::handle handle) {
  return handle.is_none() ? nullptr : stream_with_integer(handle);
}

Stream stream_of(nb::handle named) {
  if (named.is_none() || PyLong_Check(named.ptr()) != 0) return stream_of_handle(named);
  if (const nb::object protocol = attribute("stream", named, "__cuda_stream__");
      protocol.is_valid())
    return stream_of_protocol(protocol);
  for (const char* name : {"ptr", "cuda_stream"})
    if (const nb::object handle = attribute("stream", named, name); handle.is_valid())
      return stream_with_integer(handle);
  if (PyIndex_Check(named.ptr()) != 0) return stream_with_integer(named);
  throw Error(ErrorKind::usage,
              "stream: takes the handle of a CUDA stream as an integer, or an object with "
              "__cuda_stream__(), ptr or cuda_stream, and got one of type " +
                  name_of_type(named));
}

Stream stream_for(Stream named, std::initializer_list<const Array*> arrays) {
  Stream own = nullptr;
  bool on_gpu = false;
  for (const Array* array : arrays) {
    on_gpu = on_gpu || array->on_gpu;
    const Stream next = array->stream;
    if (next == nullptr || next == named) continue;
    if (named != nullptr)
      wait_for(named, next);
    else if (own != nullptr && own != next)
      throw Error(ErrorKind::usage, "the arrays of a call are ordered by two CUDA streams (" +
                                        number_of(own) + " and " + number_of(next) +
                                        "): name the one that orders the call by stream=");
    own = next;
  }
  if (named != nullptr) return named;
  return own != nullptr || !on_gpu ? own : stream_with(kDefaultStream);
}

}  // namespace tutti::python
