#include "collectives/planning/machine_costs.h"

#include <fmt/format.h>

#include <cassert>

#include "common/text.h"

namespace tutti {
namespace {

// Limits of plausible numbers, small enough that no sum over a call overflows.
constexpr std::int64_t kMostTime = 100'000'000'000, kMostRate = 100'000'000;
constexpr std::array<CostField<MachineCosts>, 10> kMachineFields{{
    {"call_ps", &MachineCosts::call, 0, kMostTime},
    {"step_ps", &MachineCosts::step, 0, kMostTime},
    {"message_ps", &MachineCosts::message, 0, kMostTime},
    {"copy_ps_per_kib", &MachineCosts::copy_kib, 0, kMostRate},
    {"reduce_ps_per_kib", &MachineCosts::reduce_kib, 0, kMostRate},
    {"far_ps_per_kib", &MachineCosts::far_kib, 0, kMostRate},
    {"yield_ps", &MachineCosts::yield, 1, kMostTime},
    {"network_ps_per_kib", &MachineCosts::network_kib, 0, kMostRate, "line_ps_per_kib"},
    {"cache_bytes", &MachineCosts::cache_bytes, 1 << 10, std::int64_t{1} << 40},
    {"error_percent", &MachineCosts::error_percent, 0, 1000},
}};
constexpr std::array<CostField<LinkCosts>, 5> kLinkFields{{
    {"latency_ps", &LinkCosts::latency, 0, kMostTime},
    {"payload_ps", &LinkCosts::payload, 0, kMostTime},
    {"read_ps_per_kib", &LinkCosts::read_kib, 0, kMostRate},
    {"write_ps_per_kib", &LinkCosts::write_kib, 0, kMostRate},
    {"message_ps", &LinkCosts::message, 0, kMostTime},
}};

template <typename Record, std::size_t kFields>
constexpr bool in_range(const std::array<CostField<Record>, kFields>& fields,
                        const Record& record) {
  for (const auto& field : fields)
    if (record.*field.member < field.least || record.*field.member > field.most) return false;
  return true;
}
static_assert(in_range(kMachineFields, MachineCosts{}));
static_assert([] {
  for (const LinkCosts& link : MachineCosts{}.links)
    if (!in_range(kLinkFields, link)) return false;
  return true;
}());
static_assert(sizeof(LinkCosts) == kLinkFields.size() * sizeof(Picoseconds), "a field is missing");

// Removes the number at the front of `text`. Returns false if there is none, or if it is out of
// range.
bool take(std::string_view& text, std::int64_t& number, std::int64_t least, std::int64_t most) {
  assert(least <= most);
  const std::size_t end = text.find(' ');
  const auto value = parse_number<std::int64_t>(text.substr(0, end));
  if (!value || *value < least || *value > most) return false;
  number = *value;
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return true;
}
template <typename Record>
bool take(std::string_view& text, Record& record, const CostField<Record>& field) {
  return take(text, record.*field.member, field.least, field.most);
}

}  // namespace

std::span<const CostField<MachineCosts>> machine_fields() noexcept { return kMachineFields; }
std::span<const CostField<LinkCosts>> link_fields() noexcept { return kLinkFields; }

std::string to_text(const MachineCosts& costs) {
  std::string text = fmt::format("{} ", static_cast<int>(costs.anywhere));
  for (const auto& field : kMachineFields) text += fmt::format("{} ", costs.*field.member);
  for (const LinkCosts& link : costs.links)
    for (const auto& field : kLinkFields) text += fmt::format("{} ", link.*field.member);
  text.pop_back();
  return text;
}

std::optional<MachineCosts> parse_costs(std::string_view text) {
  MachineCosts costs;
  std::int64_t anywhere = 0;
  if (!take(text, anywhere, 0, kLinkKinds - 1)) return std::nullopt;
  costs.anywhere = static_cast<LinkKind>(anywhere);
  for (const auto& field : kMachineFields)
    if (!take(text, costs, field)) return std::nullopt;
  for (LinkCosts& link : costs.links)
    for (const auto& field : kLinkFields)
      if (!take(text, link, field)) return std::nullopt;
  if (!text.empty()) return std::nullopt;
  return costs;
}

}  // namespace tutti
