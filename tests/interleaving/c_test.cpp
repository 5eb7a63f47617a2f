// The C interface: what belongs to a handle lives as long as the calls that use it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <tutti/tutti.h>

#include "bindings/c/handles.h"
#include "tests/interleaving/explore.h"
#include "tests/interleaving/world.h"

namespace tutti::interleaving {
namespace {

class CInterface : public testing::TestWithParam<World> {};

// Each rank destroys its handle at once, while the other one may not have called yet.
TEST_P(CInterface, MemoryOfAHandleLivesUntilTheCallsThatUseItHaveEnded) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        std::array<tuttiComm_t, 2> comms{};
        std::array<int*, 2> data{};
        const auto good = [&](tuttiResult_t result) {
          scheduler.check(result == tuttiSuccess, "a call of the C interface failed");
        };
        for (std::size_t rank = 0; rank < 2; ++rank) {
          comms[rank] = new tuttiComm(std::move(*members[rank]));
          void* memory = nullptr;
          good(tuttiMemAlloc(comms[rank], 100 * sizeof(int), &memory));
          data[rank] = static_cast<int*>(memory);
          std::fill_n(data[rank], 100, 1);
        }
        const auto use = [&](std::size_t rank) {
          tuttiWork_t work = nullptr;
          good(tuttiAllReduce(data[rank], data[rank], 100, tuttiInt32, tuttiSum, comms[rank],
                              nullptr, &work));
          good(tuttiCommDestroy(comms[rank]));
          good(tuttiWorkWait(work));
          good(tuttiWorkFree(work));
        };
        together({[&] { use(0); }, [&] { use(1); }});
      },
      seeds_over(GetParam(), 200));
}

INSTANTIATE_TEST_SUITE_P(Over, CInterface, testing::ValuesIn(kWorlds),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace tutti::interleaving
