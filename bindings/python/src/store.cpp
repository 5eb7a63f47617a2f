#include "store.h"

#include <algorithm>

#include <tutti/error.hpp>

#include "exceptions.h"
#include "interpreter.h"

namespace tutti::python {
namespace {

double left(Store::Deadline deadline) {
  using Seconds = std::chrono::duration<double>;
  return std::max(0.0, Seconds(deadline - std::chrono::steady_clock::now()).count());
}

// Runs `body` with the interpreter's lock, and turns Python exceptions into tutti's errors.
template <typename Body>
auto called(const char* method, std::string_view key, Body&& body) {
  const Locked lock;
  if (!lock)
    throw Error(ErrorKind::peer_lost, "the store is a Python object, and Python has ended");
  std::string why;
  ErrorKind kind = ErrorKind::peer_lost;
  try {
    return body();
  } catch (nb::python_error& error) {
    if (error.matches(PyExc_TimeoutError)) kind = ErrorKind::timeout;
    why = error.matches(PyExc_Exception) ? error.what() : why_it_ended(error);
  } catch (const nb::cast_error&) {
    kind = ErrorKind::usage;
    why = "it returned something of another type";
  }
  throw Error(kind,
              "the store's " + std::string(method) + " of \"" + std::string(key) + "\": " + why);
}

nb::str text(std::string_view key) { return nb::str(key.data(), key.size()); }

}  // namespace

Store::Store(nb::object object) : object_(std::move(object)) {
  for (const char* method : {"set", "get", "add", "wait"})
    if (!nb::hasattr(object_, method))
      throw Error(ErrorKind::usage,
                  std::string("a store has set, get, add and wait, and this one no ") + method);
}

void Store::set(std::string_view key, std::string_view value, Deadline deadline) {
  called("set", key, [&] {
    object_.attr("set")(text(key), nb::bytes(value.data(), value.size()), left(deadline));
  });
}

std::string Store::get(std::string_view key, Deadline deadline) {
  return called("get", key, [&] {
    const auto value = nb::cast<nb::bytes>(object_.attr("get")(text(key), left(deadline)));
    return std::string(value.c_str(), value.size());
  });
}

std::int64_t Store::add(std::string_view key, std::int64_t amount, Deadline deadline) {
  return called("add", key, [&] {
    return nb::cast<std::int64_t>(object_.attr("add")(text(key), amount, left(deadline)));
  });
}

void Store::wait(std::string_view key, Deadline deadline) {
  called("wait", key, [&] { object_.attr("wait")(text(key), left(deadline)); });
}

}  // namespace tutti::python
