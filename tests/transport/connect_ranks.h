// Connects ranks of one process.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "transport/channel.h"

namespace tutti {

/// Connects all ranks to each other, each in a thread of its own, since each waits for the others.
/// Throws the first error.
inline void connect_ranks(const std::vector<std::unique_ptr<Transport>>& ranks,
                          TimePoint deadline) {
  std::vector<std::string> addresses;
  for (const auto& rank : ranks) addresses.push_back(rank->address());
  std::vector<std::future<void>> ends;
  for (const auto& rank : ranks)
    ends.push_back(std::async(std::launch::async, [&] { rank->connect(addresses, deadline); }));
  for (auto& end : ends) end.get();
}

}  // namespace tutti
