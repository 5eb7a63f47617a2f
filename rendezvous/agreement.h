// How ranks meet: each tells the others who it is, and all refuse to start when they do not fit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tutti/store.hpp>

#include "rendezvous/roster.h"

namespace tutti {

/// Publishes `mine` and returns what all ranks say: a column for each of the texts. Collective; all
/// ranks bring equally many. A rank costs the store log2(`size`) messages and a few: ranks collect
/// from each other along a binomial tree, whose root has the whole. Keys begin with
/// "`prefix`/hello/". A prefix serves once. Throws `timeout` naming the ranks that have not come by
/// the deadline, `corrupt` on every rank, naming one whose words cannot be read, and what the store
/// throws.
std::vector<Texts> exchange(Store& store, std::string_view prefix, int rank, int size,
                            const std::vector<std::string>& mine, Store::Deadline deadline);

/// `settings`: "name=value" lines. Throws `mismatch` where they differ: on every rank, naming each
/// rank that differs from rank 0, and both values of what it differs in.
void check_agreement(const Texts& settings, int rank);

}  // namespace tutti
