// The exchange of information between all ranks at start-up, and the check that their settings
// agree.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/store.hpp>

#include "common/log.h"
#include "rendezvous/roster.h"

namespace tutti {

/// Says where rank 0 reports which ranks it still waits for (nowhere if `log` is null), and after
/// how long it does so for the first time. It does so again every minute.
struct Reports {
  Log* log = nullptr;
  std::chrono::milliseconds after = std::chrono::seconds(5);
};

/// Publishes the texts `mine` and returns those of all ranks, one column for each text. It is a
/// collective call, in which all ranks pass the same number of texts. Ranks gather along a binomial
/// tree, whose root then has all texts, so that each rank makes about log2(`size`) requests to the
/// store. Keys begin with `prefix`, which can be used only once. Throws `timeout`, naming the ranks
/// that have not called by the deadline; `corrupt` on every rank, naming a rank whose texts cannot
/// be decoded; and whatever the store throws.
std::vector<Texts> exchange(Store& store, std::string_view prefix, int rank, int size,
                            const std::vector<std::string>& mine, Store::Deadline deadline,
                            Reports reports = {});

/// Checks that all ranks have the same settings, each of which is a line "name=value". Throws
/// `mismatch` on every rank if they differ, naming the ranks that differ from rank 0 (at most 16,
/// and the number of others), the settings in which they differ, and both values.
void check_agreement(const Texts& settings, int rank);

}  // namespace tutti
