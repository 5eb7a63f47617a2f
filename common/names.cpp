// The names of types, operations and collectives, which messages and tools show.
#include <tutti/types.hpp>

#include <array>
#include <cassert>

namespace tutti {
namespace {

struct TypeRow {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<TypeRow, kDataTypes> kTypes{{
    {"int8", 1},
    {"uint8", 1},
    {"int16", 2},
    {"uint16", 2},
    {"int32", 4},
    {"uint32", 4},
    {"int64", 8},
    {"uint64", 8},
    {"f16", 2},
    {"bf16", 2},
    {"f32", 4},
    {"f64", 8},
    {"f8e4m3", 1},
    {"f8e5m2", 1},
    {"complex64", 8},
    {"complex128", 16},
    {"bool", 1},
}};
constexpr std::array<std::string_view, kOps> kOpNames{
    "sum",     "prod",   "min",     "max",         "avg",       "premul_sum",
    "bit_and", "bit_or", "bit_xor", "logical_and", "logical_or"};
constexpr std::array<std::string_view, kCollectives> kCollectiveNames{
    "all_reduce", "broadcast", "reduce",  "all_gather", "reduce_scatter",
    "barrier",    "gather",    "scatter", "all_to_all"};
// A value without a row would have an empty name.
static_assert(kTypes.back().bytes > 0 && !kOpNames.back().empty() &&
              !kCollectiveNames.back().empty());

// A value may come from a peer's memory, so a number without a name must be printable.
template <typename E, typename Table>
std::string_view name_in(const Table& table, E value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  if (index >= table.size()) return "unknown";
  if constexpr (requires { table[index].name; })
    return table[index].name;
  else
    return table[index];
}

}  // namespace

std::string_view to_string(DataType type) noexcept { return name_in(kTypes, type); }
std::string_view to_string(Op op) noexcept { return name_in(kOpNames, op); }
std::string_view to_string(Collective what) noexcept { return name_in(kCollectiveNames, what); }

std::size_t size_of(DataType type) noexcept {
  const auto index = static_cast<std::size_t>(type);
  return index < kTypes.size() ? kTypes[index].bytes : 0;
}

}  // namespace tutti
