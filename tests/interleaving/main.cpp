// usage: test_interleaving [--seeds=N] [--seed=N] [--policy=random|priorities] [--seconds=N]
//                          [--shrink=0] [options of GoogleTest]
//
// --seeds: the number of runs of each scenario, in place of its own; --seed: runs this seed alone;
// --policy: for all seeds, in place of one that the seed decides; --seconds: the most time that a
// scenario takes, if it does not fail; --shrink=0: shows a failure as it was found.
#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <string_view>

#include "tests/interleaving/explore.h"

namespace {

using namespace tutti::interleaving;

bool take_number(std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Returns false if there is no such option.
bool take(std::string_view argument, Effort& effort) {
  const auto equals = argument.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = argument.substr(0, equals), value = argument.substr(equals + 1);
  std::uint64_t number = 0;
  if (name == "--policy") {
    for (const Policy policy : {Policy::random, Policy::priorities})
      if (value == to_string(policy)) effort.policy = policy;
    return effort.policy.has_value();
  }
  if (!take_number(value, number)) return false;
  if (name == "--seeds") {
    effort.seeds = number;
  } else if (name == "--seed") {
    effort.first_seed = number;
    effort.single = true;
  } else if (name == "--seconds") {
    effort.most_time = std::chrono::seconds(number);
  } else if (name == "--shrink") {
    effort.shrinks = number != 0;
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (!take(argv[i], effort())) {
      std::fprintf(stderr, "test_interleaving: no such option: %s\n", argv[i]);
      return 2;
    }
  return RUN_ALL_TESTS();
}
