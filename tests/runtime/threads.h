// Runs ranks as threads, through the public API.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include <tutti/tutti.hpp>

#include "rendezvous/store/memory_store.h"
#include "transport/ucx/open.h"

namespace tutti::test {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Matches a container of numbers that all equal `expected`. Each() takes 100 ns for an element.
MATCHER_P(AllAre, expected, "all are " + testing::PrintToString(expected)) {
  using Element = std::decay_t<decltype(*arg.begin())>;
  const auto other = std::find_if(arg.begin(), arg.end(), [&](const Element& element) {
    return element != static_cast<Element>(expected);
  });
  if (other == arg.end()) return true;
  *result_listener << "element " << other - arg.begin() << " is " << testing::PrintToString(*other);
  return false;
}

/// Returns a configuration for tests, in which no wait lasts longer than a test may.
inline Config quick_config(std::string transports = "auto") {
  Config config;
  config.transports = std::move(transports);
  config.timeout = std::chrono::seconds(20);
  config.startup_timeout = std::chrono::seconds(20);
  return config;
}

/// Returns the transports that tests run over, and `ucx` where this build has it.
inline std::vector<const char*> and_ucx(std::vector<const char*> transports) {
  if (ucx::is_built()) transports.push_back("ucx");
  return transports;
}
/// Returns whether a transport's messages pass through the kernel, or may.
inline bool over_network(std::string_view transport) {
  return transport == "tcp" || transport == "ucx";
}

/// The outcome of each rank's thread: an empty string, or "kind: message" of the error that it
/// threw.
using Outcomes = std::vector<std::string>;

inline std::string outcome_of(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return std::string(to_string(error.kind())) + ": " + error.what();
  } catch (const std::exception& error) {
    return std::string("exception: ") + error.what();
  }
}

/// Runs `body` on `size` threads, each with its communicator, either in process, or over shm or tcp
/// with a store in memory.
inline Outcomes run_ranks(int size, const Config& config,
                          const std::function<void(Communicator&)>& body) {
  Outcomes outcomes(static_cast<std::size_t>(size));
  auto store = std::make_shared<MemoryStore>();
  std::vector<Communicator> in_process;
  const bool by_store = config.transports.find("shm") != std::string::npos ||
                        config.transports.find("tcp") != std::string::npos;
  if (!by_store) in_process = Communicator::in_process(size, config);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      outcomes[static_cast<std::size_t>(rank)] = outcome_of([&] {
        if (by_store) {
          Communicator comm = Communicator::create(store, rank, size, config);
          body(comm);
        } else {
          Communicator comm = std::move(in_process[static_cast<std::size_t>(rank)]);
          body(comm);
        }
      });
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

}  // namespace tutti::test
