// The parameters that programs may read (ncclParam...): the NCCL_ variables that have an effect.
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "bindings/nccl/errors.h"
#include "bindings/nccl/settings.h"

namespace tutti::nccl {
namespace {

const Variable& parameter(const char* key) {
  require(key != nullptr, "the key is null");
  for (const Variable* each = known_variables(); each->name != nullptr; ++each)
    if (std::strcmp(each->name, key) == 0) return *each;
  throw Failure(ncclInvalidArgument, std::string(key) + " is no parameter of tutti's libnccl.so.2");
}

// A handle is the address of a row of the table.
const Variable& parameter(ncclParamHandle_t handle) {
  for (const Variable* each = known_variables(); each->name != nullptr; ++each)
    if (static_cast<const void*>(each) == static_cast<const void*>(handle)) return *each;
  throw Failure(ncclInvalidArgument, "the handle is none of ncclParamBind");
}

// Keeps the text that the calling thread was given last.
const std::string& kept(std::string text) {
  thread_local std::string last;
  return last = std::move(text);
}

std::string value_of(const Variable& parameter) {
  return variable(parameter.name).value_or(std::string());
}

template <typename T>
ncclResult_t get_number(ncclParamHandle_t handle, T* out) noexcept {
  return guarded([&] {
    const Variable& its = parameter(handle);
    require(out != nullptr, "the place for the value is null");
    const std::string text = value_of(its);
    const auto bad = [&] {
      return Failure(ncclInvalidArgument,
                     std::string(its.name) + " is '" + text +
                         "', which is no number of the type that was asked for");
    };
    std::size_t used = 0;
    try {
      const long long value = std::stoll(text, &used);
      if (used != text.size() || static_cast<long long>(static_cast<T>(value)) != value ||
          (std::is_unsigned_v<T> && value < 0))
        throw bad();
      *out = static_cast<T>(value);
    } catch (const std::logic_error&) {
      throw bad();
    }
  });
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_FUNCTION(ncclResult_t, ncclParamBind, ncclParamHandle_t* handle, const char* key) {
  return guarded([&] {
    require(handle != nullptr, "the place for the handle is null");
    *handle = reinterpret_cast<ncclParamHandle_t>(&parameter(key));
  });
}

#define NCCL_PARAMETER(name, Type)                                                            \
  NCCL_FUNCTION(ncclResult_t, name, ncclParamHandle_t handle, std::add_pointer_t<Type> out) { \
    return get_number(handle, out);                                                           \
  }
NCCL_PARAMETER(ncclParamGetI8, int8_t)
NCCL_PARAMETER(ncclParamGetI16, int16_t)
NCCL_PARAMETER(ncclParamGetI32, int32_t)
NCCL_PARAMETER(ncclParamGetI64, int64_t)
NCCL_PARAMETER(ncclParamGetU8, uint8_t)
NCCL_PARAMETER(ncclParamGetU16, uint16_t)
NCCL_PARAMETER(ncclParamGetU32, uint32_t)
NCCL_PARAMETER(ncclParamGetU64, uint64_t)

NCCL_FUNCTION(ncclResult_t, ncclParamGetStr, ncclParamHandle_t handle, const char** out) {
  return guarded([&] {
    const Variable& its = parameter(handle);
    require(out != nullptr, "the place for the value is null");
    *out = kept(value_of(its)).c_str();
  });
}

NCCL_FUNCTION(ncclResult_t, ncclParamGet, ncclParamHandle_t handle, void* out, int most,
              int* length) {
  return guarded([&] {
    const std::string text = value_of(parameter(handle));
    require(out != nullptr && length != nullptr && most >= 0, "the place for the value is null");
    *length = static_cast<int>(text.size()) + 1;
    require(*length <= most, "the value is longer than the place for it");
    std::memcpy(out, text.c_str(), static_cast<std::size_t>(*length));
  });
}

NCCL_FUNCTION(ncclResult_t, ncclParamGetParameter, const char* key, const char** value,
              int* length) {
  return guarded([&] {
    const Variable& its = parameter(key);
    require(value != nullptr && length != nullptr, "the place for the value is null");
    const std::string& text = kept(value_of(its));
    *value = text.c_str();
    *length = static_cast<int>(text.size());
  });
}

NCCL_FUNCTION(ncclResult_t, ncclParamGetAllParameterKeys, const char*** table, int* length) {
  return guarded([&] {
    require(table != nullptr && length != nullptr, "the place for the keys is null");
    thread_local std::vector<const char*> keys;
    keys.clear();
    for (const Variable* each = known_variables(); each->name != nullptr; ++each)
      keys.push_back(each->name);
    *table = keys.data();
    *length = static_cast<int>(keys.size());
  });
}

NCCL_FUNCTION(void, ncclParamDumpAll) {
  for (const Variable* each = known_variables(); each->name != nullptr; ++each)
    if (const auto value = variable(each->name))
      std::fprintf(stderr, "tutti: %s=%s\n", each->name, value->c_str());
}
