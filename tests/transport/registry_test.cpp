#include "transport/registry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tutti/error.hpp>

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

}  // namespace
}  // namespace tutti
