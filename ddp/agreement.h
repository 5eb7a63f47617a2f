// Finds out in what ranks differ, and reports it on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/tutti.hpp>

namespace tutti::ddp {

/// Returns the indices of the elements that are not the same on every rank, in ascending order; the
/// result is the same on every rank. All ranks pass the same number of elements. Collective; it
/// costs one all-reduce of twice the elements, whatever the number of ranks.
std::vector<std::size_t> differences(Communicator& communicator,
                                     std::span<const std::uint64_t> mine,
                                     const CallOptions& options);

/// Returns the texts of all ranks, with the ranks of one text together: "rank 1: x; ranks 0, 2: y".
/// Collective.
std::string by_rank(Communicator& communicator, std::string_view mine, const CallOptions& options);

/// Does the same for texts that this rank already has, indexed by rank.
std::string by_rank(std::span<const std::string> texts);

}  // namespace tutti::ddp
