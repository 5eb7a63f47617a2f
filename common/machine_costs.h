// What moving and combining bytes costs on a machine: plain whole numbers, by which schedules are
// priced. Whole, so that all ranks compute the same from the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

/// What two ranks share that is nearest to them.
enum class LinkKind { same_core, shared_l2, shared_l3, same_package, other_package, other_machine };
inline constexpr std::size_t kLinkKinds = 6;
std::string_view to_string(LinkKind link);

using Picoseconds = std::int64_t;

/// From one rank to another. Ends in `_kib`: for 1024 bytes.
struct LinkCosts {
  Picoseconds latency;   ///< From a post to when the peer sees it, and the room given back.
  Picoseconds payload;   ///< What a payload beside the message's line adds to that.
  Picoseconds read_kib;  ///< To read what the peer has written.
  Picoseconds
      write_kib;  ///< To write where the peer has read; an answer costs no more than a copy.
  Picoseconds message = 0;  ///< At each end, beside MachineCosts::message: a system call.

  bool operator==(const LinkCosts&) const = default;
};

/// The defaults are what was found on two cores of a Xeon of the Sapphire Rapids generation, from
/// 657 calls of 2, 4 and 8 ranks, and between two machines in a box from 396 more
/// (docs/selection.md); links that were not there are guesses.
struct MachineCosts {
  Picoseconds call = 30'000;       ///< Of a call, beside its steps.
  Picoseconds step = 12'200;       ///< Of a step, beside what it moves.
  Picoseconds message = 12'000;    ///< At each end, beside its bytes.
  Picoseconds copy_kib = 10'000;   ///< Of each operand in a buffer that a core's cache holds.
  Picoseconds reduce_kib = 8'000;  ///< Of each operand of a reduction but the first.
  Picoseconds far_kib = 33'000;    ///< Of each operand in a buffer that no core's cache holds.
  Picoseconds yield = 1'120'000;   ///< A turn of a rank that shares its core, and finds nothing.
  Picoseconds line_kib = 80'000;   ///< Of the line to other machines, each way; all ranks share it.
  std::int64_t cache_bytes = 2 << 20;       ///< Of a core.
  std::int64_t error_percent = 43;          ///< How far predictions are off: less decides nothing.
  LinkKind anywhere = LinkKind::shared_l3;  ///< Between ranks on different cores of one machine.
  std::array<LinkCosts, kLinkKinds> links{{{20'000, 10'000, 55'000, 14'000},
                                           {100'000, 100'000, 45'000, 40'000},
                                           {147'000, 152'000, 55'000, 50'000},
                                           {147'000, 152'000, 55'000, 50'000},
                                           {300'000, 300'000, 110'000, 100'000},
                                           {3'000, 16'000, 36'000, 120'000, 2'330'000}}};

  const LinkCosts& link(LinkKind kind) const { return links[static_cast<std::size_t>(kind)]; }
  bool operator==(const MachineCosts&) const = default;
};

/// A number of a record, by name, with the range that is sane.
template <typename Record>
struct CostField {
  std::string_view name;
  std::int64_t Record::*member;
  std::int64_t least, most;
};
std::span<const CostField<MachineCosts>> machine_fields() noexcept;
std::span<const CostField<LinkCosts>> link_fields() noexcept;

/// All numbers in the order of the fields, and back; none for what to_text() did not write, or a
/// number out of its range.
std::string to_text(const MachineCosts& costs);
std::optional<MachineCosts> parse_costs(std::string_view text);

}  // namespace tutti
