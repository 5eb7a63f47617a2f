// Finds the data types of tutti by the names that Python's protocols for arrays give them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <tutti/types.hpp>

namespace tutti::python {

/// Returns the type of elements of `bytes` bytes that the buffer protocol describes by a format of
/// the struct module; null means bytes.
std::optional<DataType> type_of_format(const char* format, std::size_t bytes);
/// Does the same for DLPack's type codes.
std::optional<DataType> type_of_code(std::uint8_t code, std::size_t bytes);
/// Does the same for a typestr of NumPy's array interface, such as "<f4".
std::optional<DataType> type_of_typestr(std::string_view typestr);

}  // namespace tutti::python
