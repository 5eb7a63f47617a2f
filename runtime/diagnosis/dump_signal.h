// The signal by which a user asks a process to dump what its flight recorder has.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

/// Has the signal `name` (USR1 or USR2) ask for a dump from now on, in the whole process. Returns
/// false, and changes nothing, if the program handles the signal itself. Its handler only counts
/// and rings a bell; the runtimes' background threads do the rest. Thread-safe.
bool listen_for_dump_signal(std::string_view name) noexcept;

/// Returns how often the signal has come.
std::uint32_t dumps_asked_for() noexcept;

/// Returns the descriptor that becomes readable, edge-triggered, when the signal comes; -1 if no
/// signal has been listened for. It stays open as long as the process.
int dump_signal_fd() noexcept;

}  // namespace tutti
