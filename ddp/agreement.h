// Finds out where ranks differ, and says so on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/tutti.hpp>

namespace tutti::ddp {

/// Indices of the elements that are not the same on every rank, ascending; the same answer
/// everywhere. All ranks give equally many. Collective; costs one all-reduce of twice the elements,
/// however many ranks.
std::vector<std::size_t> differences(Communicator& communicator,
                                     std::span<const std::uint64_t> mine,
                                     const CallOptions& options);

/// What each rank has to say, ranks of one text together: "rank 1: x; ranks 0, 2: y". Collective.
std::string by_rank(Communicator& communicator, std::string_view mine, const CallOptions& options);

/// The same for texts that are all here, by rank.
std::string by_rank(std::span<const std::string> texts);

}  // namespace tutti::ddp
