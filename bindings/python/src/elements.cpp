#include "elements.h"

#include <charconv>
#include <iterator>

namespace tutti::python {
namespace {

enum class Kind { integer, natural, real, brain, complex, boolean, f8e4m3, f8e5m2, none };

struct Row {
  Kind kind;
  std::size_t bytes;
  DataType type;
};
constexpr Row kRows[] = {
    {Kind::integer, 1, DataType::int8},      {Kind::integer, 2, DataType::int16},
    {Kind::integer, 4, DataType::int32},     {Kind::integer, 8, DataType::int64},
    {Kind::natural, 1, DataType::uint8},     {Kind::natural, 2, DataType::uint16},
    {Kind::natural, 4, DataType::uint32},    {Kind::natural, 8, DataType::uint64},
    {Kind::real, 2, DataType::f16},          {Kind::real, 4, DataType::f32},
    {Kind::real, 8, DataType::f64},          {Kind::brain, 2, DataType::bf16},
    {Kind::complex, 8, DataType::complex64}, {Kind::complex, 16, DataType::complex128},
    {Kind::boolean, 1, DataType::boolean},   {Kind::f8e4m3, 1, DataType::f8e4m3},
    {Kind::f8e5m2, 1, DataType::f8e5m2},
};
static_assert(std::size(kRows) == kDataTypes, "a data type is missing here");

std::optional<DataType> type_of(Kind kind, std::size_t bytes) {
  for (const Row& row : kRows)
    if (row.kind == kind && row.bytes == bytes) return row.type;
  return std::nullopt;
}

// NumPy writes a complex number as Z and the letter of its parts.
Kind kind_of_format(const char* format) {
  if (format == nullptr) return Kind::natural;
  std::string_view letters(format);
  if (!letters.empty() && std::string_view("@=<").find(letters.front()) != letters.npos)
    letters.remove_prefix(1);
  if (letters.size() == 2 && letters.front() == 'Z') return Kind::complex;
  if (letters.size() != 1) return Kind::none;
  if (letters == "?") return Kind::boolean;
  if (std::string_view("bhilqn").find(letters) != letters.npos) return Kind::integer;
  if (std::string_view("cBHILQN").find(letters) != letters.npos) return Kind::natural;
  return std::string_view("efd").find(letters) != letters.npos ? Kind::real : Kind::none;
}

Kind kind_of_code(std::uint8_t code) {
  switch (code) {
    case 0: return Kind::integer;
    case 1: return Kind::natural;
    case 2: return Kind::real;
    case 4: return Kind::brain;
    case 5: return Kind::complex;
    case 6: return Kind::boolean;
    case 10: return Kind::f8e4m3;
    case 12: return Kind::f8e5m2;
    default: return Kind::none;
  }
}

Kind kind_of_letter(char letter) {
  switch (letter) {
    case 'i': return Kind::integer;
    case 'u': return Kind::natural;
    case 'f': return Kind::real;
    case 'c': return Kind::complex;
    case 'b': return Kind::boolean;
    default: return Kind::none;
  }
}

}  // namespace

std::optional<DataType> type_of_format(const char* format, std::size_t bytes) {
  return type_of(kind_of_format(format), bytes);
}

std::optional<DataType> type_of_code(std::uint8_t code, std::size_t bytes) {
  return type_of(kind_of_code(code), bytes);
}

std::optional<DataType> type_of_typestr(std::string_view typestr) {
  if (typestr.size() < 3 || std::string_view("<|=").find(typestr.front()) == typestr.npos)
    return std::nullopt;
  std::size_t bytes = 0;
  const char* const end = typestr.data() + typestr.size();
  const auto read = std::from_chars(typestr.data() + 2, end, bytes);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return type_of(kind_of_letter(typestr[1]), bytes);
}

}  // namespace tutti::python
