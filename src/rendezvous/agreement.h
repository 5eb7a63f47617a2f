// How ranks meet: each tells the others who it is, and all refuse to start when they do not fit.
#pragma once

#include <string_view>
#include <vector>

#include <tutti/store.hpp>

#include "rendezvous/hello.h"

namespace tutti {

/// Publishes `mine` and returns the hellos of all ranks. Keys begin with "`prefix`/hello/". A
/// prefix serves once. Throws `timeout` naming every rank that has not come by the deadline, and
/// what the store throws.
std::vector<Hello> exchange_hellos(Store& store, std::string_view prefix, int rank, int size,
                                   const Hello& mine, Store::Deadline deadline);

/// Throws `mismatch` where ranks differ in version, settings or schedules: on every rank, naming
/// each rank that differs from rank 0, and both values of what it differs in.
void check_agreement(const std::vector<Hello>& hellos, int rank);

}  // namespace tutti
