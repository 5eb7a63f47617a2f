// Converts a status page to bytes, for transports that send it in messages.
#pragma once

#include <array>
#include <cstddef>

#include "transport/status_page.h"

namespace tutti {

/// Holds the bytes of a status page on the wire. They leave out the first word, which counts
/// sleepers and concerns only the owner's process.
inline constexpr std::size_t kStatusPageSkip = sizeof(StatusPage::sleepers);
inline constexpr std::size_t kStatusPageBytes = sizeof(StatusPage) - kStatusPageSkip;
using StatusPageBytes = std::array<std::byte, kStatusPageBytes>;

/// Returns what peers see of `status_page` at this moment. Its owner may be writing to it.
StatusPageBytes read_status_page(const StatusPage& status_page);
/// Stores received bytes in `status_page`, unless it says already that the rank has failed or
/// closed, after which it is constant. Other threads may be reading it.
void write_status_page(StatusPage& status_page, const StatusPageBytes& bytes);

}  // namespace tutti
