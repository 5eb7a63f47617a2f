// Joins a rank to its job's store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tutti/store.hpp>

#include "common/log.h"
#include "common/patience.h"
#include "rendezvous/launch/job_address.h"
#include "rendezvous/store/route.h"

namespace tutti::rendezvous {

/// A process says this of itself when it joins; see Greeting.
struct Applying {
  std::uint32_t flags = 0;
  std::uint64_t client = 0;
};

/// One attempt to join. Returns none if another one may succeed, with the reason in `obstacle`;
/// `answered` says whether the server has told this process to try later. Throws as join_store()
/// does.
std::optional<Joined> try_to_join(Route& route, const JobAddress& job, int rank,
                                  const Applying& applying, const Patience& patience,
                                  std::string& obstacle, bool& answered);

/// Joins as `rank`. It tries again as long as `patience` lasts while the server cannot be reached,
/// and writes the reason to `log` if that takes more than a few seconds. Throws `timeout`;
/// `peer_lost` if it was given up; `mismatch` if the server is that of another job, or if another
/// process has already joined as this rank; and what the route throws.
Joined join_store(Route& route, const JobAddress& job, int rank, const Patience& patience, Log& log,
                  const Applying& applying = {});

}  // namespace tutti::rendezvous
