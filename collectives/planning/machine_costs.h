// The costs of moving and combining bytes on a machine, from which the prices of schedules are
// computed. They are whole numbers, so that all ranks compute the same results.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "topology/machine.h"

namespace tutti {

using Picoseconds = std::int64_t;

/// Costs of messages from one rank to another. Names that end in `_kib` are costs of 1024 bytes.
struct LinkCosts {
  /// From a post until the peer sees the message, and from a release until the sender sees the free
  /// slot.
  Picoseconds latency;
  /// The additional latency of a payload that is not in the message's cache line.
  Picoseconds payload;
  Picoseconds read_kib;  ///< Reading data that the peer has written.
  /// Writing to memory that the peer has read. An answer costs no more than a copy.
  Picoseconds write_kib;
  /// A system call at each end, in addition to MachineCosts::message.
  Picoseconds message = 0;

  bool operator==(const LinkCosts&) const = default;
};

/// Costs of a machine. The defaults were measured on two cores of a Xeon of the Sapphire Rapids
/// generation, with 657 calls of 2, 4 and 8 ranks, and with 396 more between two network
/// namespaces, which stand for two machines (docs/selection.md). Links that this machine does not
/// have are guesses.
struct MachineCosts {
  Picoseconds call = 30'000;       ///< A call, without its steps.
  Picoseconds step = 12'200;       ///< A step, without the bytes that it moves.
  Picoseconds message = 12'000;    ///< A message at each end, without its bytes.
  Picoseconds copy_kib = 10'000;   ///< Each operand in a buffer that fits into a core's cache.
  Picoseconds reduce_kib = 8'000;  ///< Each operand of a reduction, except the first.
  Picoseconds far_kib = 33'000;    ///< Each operand in a larger buffer.
  /// A turn of a rank that shares its core and finds nothing to do.
  Picoseconds yield = 1'120'000;
  /// The network link to other machines, in each direction; all ranks of a machine share it.
  Picoseconds network_kib = 80'000;
  std::int64_t cache_bytes = 2 << 20;  ///< The size of a core's cache.
  /// The error of predictions in percent; smaller differences decide nothing.
  std::int64_t error_percent = 43;
  /// The link that is assumed between ranks on different cores of one machine.
  LinkKind anywhere = LinkKind::shared_l3;
  std::array<LinkCosts, kLinkKinds> links{{{20'000, 10'000, 55'000, 14'000},
                                           {100'000, 100'000, 45'000, 40'000},
                                           {147'000, 152'000, 55'000, 50'000},
                                           {147'000, 152'000, 55'000, 50'000},
                                           {300'000, 300'000, 110'000, 100'000},
                                           {3'000, 16'000, 36'000, 120'000, 2'330'000}}};

  const LinkCosts& link(LinkKind kind) const { return links[static_cast<std::size_t>(kind)]; }
  bool operator==(const MachineCosts&) const = default;
};

/// A number of a record, with its name and the range of plausible values.
template <typename Record>
struct CostField {
  std::string_view name;
  std::int64_t Record::*member;
  std::int64_t least, most;
  std::string_view former_name =
      {};  ///< In tuning files of earlier versions; empty if it is the same.
};
std::span<const CostField<MachineCosts>> machine_fields() noexcept;
std::span<const CostField<LinkCosts>> link_fields() noexcept;

/// Convert all numbers to text, in the order of the fields, and back. parse_costs() returns none
/// for a text that to_text() did not write, and for a number out of its range.
std::string to_text(const MachineCosts& costs);
std::optional<MachineCosts> parse_costs(std::string_view text);

}  // namespace tutti
