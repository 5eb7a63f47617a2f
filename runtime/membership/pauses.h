// The times of the agreements over a store.
#pragma once

#include <chrono>

#include "rendezvous/store/replication.h"

namespace tutti {

// The pause between two requests to the store, which gets longer and longer, because many ranks ask
// one server.
inline constexpr std::chrono::milliseconds kFirstPause{1}, kLongestPause{50};
// A rank that waits for the store looks this often whether a member has ended.
inline constexpr std::chrono::milliseconds kWatchEvery{100};
// The time that a rank has for its requests to the store after its patience has ended.
inline constexpr std::chrono::milliseconds kStoreGrace{1000};
static_assert(2 * rendezvous::kApplyLimit <= kStoreGrace,
              "a frozen standby of the store must not end what others agree on");
// A step of an agreement that is later than it should be by so much had to wait for the store, as
// while another process takes over the service of one that has ended. The other ranks had to wait
// as well, and get so much time after that to say that they are here.
inline constexpr std::chrono::milliseconds kStall{250}, kAfterStall{1000};
// A newcomer looks for the job's store no longer than this. The job runs, or else it has ended, and
// a launcher that has started the newcomer waits for it.
inline constexpr std::chrono::milliseconds kMostToFindJob{15'000};
static_assert(kFirstPause < kLongestPause && kLongestPause < kWatchEvery);

}  // namespace tutti
