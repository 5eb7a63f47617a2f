// What the lanes of a warp do together, and barriers.
#pragma once

#include "tests/cuda/kernel.h"
#include "tests/cuda/ptx/types.h"

namespace tutti::stand_in::ptx {

enum class Lane { up, down, bfly, idx };

/// shfl.sync: `inside` becomes whether the source lane is within the segment; `control` holds the
/// segment's mask and the bound.
inline u32 shuffle(Thread& self, Lane mode, u32 value, u32 distance, u32 control, u32 lanes,
                   bool& inside) {
  const u32 lane = self.number % kWarp, segment = control >> 8 & 31, bound = control & 31;
  const u32 most = (lane & segment) | (bound & ~segment), least = lane & segment;
  distance &= 31;
  u32 source = 0;
  switch (mode) {
    case Lane::up:
      source = lane - distance;
      inside = static_cast<s32>(source) >= static_cast<s32>(most);
      break;
    case Lane::down:
      source = lane + distance;
      inside = source <= most;
      break;
    case Lane::bfly:
      source = lane ^ distance;
      inside = source <= most;
      break;
    case Lane::idx:
      source = least | (distance & ~segment);
      inside = source <= most;
      break;
  }
  return static_cast<u32>(self.meet(lanes, value)[inside ? source & 31 : lane]);
}

/// The lanes of those named that are there, for a block that does not fill its last warp.
inline u32 there(Thread& self, u32 lanes) {
  const u64 left = self.block_size.count() - self.number / kWarp * kWarp;
  return left < kWarp ? lanes & ((u32{1} << left) - 1) : lanes;
}

inline u32 vote_ballot(Thread& self, bool vote, u32 lanes) {
  const u64* const votes = self.meet(lanes, vote ? 1 : 0);
  u32 result = 0;
  for (u32 lane = 0; lane < kWarp; ++lane)
    if ((there(self, lanes) >> lane & 1) != 0) result |= static_cast<u32>(votes[lane] & 1) << lane;
  return result;
}
inline bool vote_any(Thread& self, bool vote, u32 lanes) {
  return vote_ballot(self, vote, lanes) != 0;
}
inline bool vote_all(Thread& self, bool vote, u32 lanes) {
  return vote_ballot(self, vote, lanes) == there(self, lanes);
}
inline bool vote_uni(Thread& self, bool vote, u32 lanes) {
  const u32 result = vote_ballot(self, vote, lanes);
  return result == 0 || result == there(self, lanes);
}

inline u32 match_any(Thread& self, u64 value, u32 lanes) {
  const u64* const values = self.meet(lanes, value);
  u32 result = 0;
  for (u32 lane = 0; lane < kWarp; ++lane)
    if ((there(self, lanes) >> lane & 1) != 0 && values[lane] == value) result |= u32{1} << lane;
  return result;
}
inline u32 match_all(Thread& self, u64 value, u32 lanes) {
  return match_any(self, value, lanes) == there(self, lanes) ? there(self, lanes) : 0;
}

template <typename T, typename Function>
T reduce_in_warp(Thread& self, T value, u32 lanes, Function function) {
  const u64* const values = self.meet(lanes, static_cast<u32>(value));
  bool first = true;
  T result{};
  for (u32 lane = 0; lane < kWarp; ++lane) {
    if ((there(self, lanes) >> lane & 1) == 0) continue;
    const T each = static_cast<T>(values[lane]);
    result = first ? each : function(result, each);
    first = false;
  }
  return result;
}

inline u32 threads_at_barrier(Thread& self, u32 threads) {
  return threads == 0 ? static_cast<u32>(self.block_size.count()) : threads;
}

}  // namespace tutti::stand_in::ptx
