// What each rank tells all others before the first channel is made, as bytes for the store.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/cpus.h"

namespace tutti {

struct Hello {
  std::string version;          ///< tutti::version().
  std::string settings;         ///< agree_text() of the configuration.
  std::uint64_t schedules = 0;  ///< Hash of the table of algorithms.
  std::string costs;            ///< to_text() of a MachineCosts; of rank 0 alone, for all.
  std::string host;             ///< host_identity(): equal on one machine.
  pid_t pid = 0;
  Cpus cpus;                                     ///< That the process may run on.
  std::map<std::string, std::string> addresses;  ///< Transport's name to Transport::address().

  bool operator==(const Hello&) const = default;
};

std::string encode(const Hello& hello);

/// Throws `corrupt`, naming `rank`, for anything that encode() did not write.
Hello decode_hello(std::string_view bytes, int rank);

/// Of a host_identity(): the machine whose cores it has. Containers may share one.
std::string_view machine_of(std::string_view host);

/// This machine since its last start, as the kernel numbers it, and the network namespace: the
/// names of Unix sockets do not reach beyond it.
std::string host_identity();

}  // namespace tutti
