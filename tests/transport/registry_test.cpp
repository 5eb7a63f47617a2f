#include "transport/registry.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include <tutti/error.hpp>

#include "transport/context.h"

namespace tutti {
namespace {

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  for (const TransportEntry& entry : parse_transports(list)) names.emplace_back(entry.name);
  return names;
}

TEST(TransportRegistry, AutoIsAllOfThem) {
  EXPECT_EQ(names_in("auto"),
            (std::vector<std::string>{"local", "shm", "rdma", "ucx", "tcp", "cuda_ipc"}));
}

TEST(TransportRegistry, AListKeepsItsOwnOrder) {
  EXPECT_EQ(names_in("shm,local"), (std::vector<std::string>{"shm", "local"}));
  EXPECT_EQ(names_in("shm"), std::vector<std::string>{"shm"});
}

TEST(TransportRegistry, AnUnknownNameIsAUsageErrorThatListsTheKnownOnes) {
  for (const char* list : {"infiniband", "shm,infiniband", "", "shm,", ",shm"}) try {
      parse_transports(list);
      ADD_FAILURE() << "'" << list << "' was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string_view(error.what()).find("it knows: auto, local, shm"),
                std::string_view::npos)
          << error.what();
    }
}

TEST(CheckTimes, ComeSoonAndThenEverMoreSeldomUpToASecondAndLaterForManyRanks) {
  using std::chrono::milliseconds;
  const auto times = [](int ranks) {
    CheckTimes check(ranks, TimePoint());
    std::vector<long> found;
    for (TimePoint now{}; found.size() < 6; now += milliseconds(10))
      if (check.due(now)) found.push_back((now - TimePoint()) / milliseconds(1));
    return found;
  };
  EXPECT_EQ(times(2), (std::vector<long>{100, 300, 700, 1500, 2500, 3500}));
  EXPECT_EQ(times(500), (std::vector<long>{500, 1500, 2500, 3500, 4500, 5500}));
  EXPECT_EQ(times(5000), (std::vector<long>{1000, 2000, 3000, 4000, 5000, 6000}));
}

}  // namespace
}  // namespace tutti
