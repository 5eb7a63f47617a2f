// Runs every fuzz target on its seeds and on random changes of them, as libFuzzer does, but only
// for a moment.
#include <gtest/gtest.h>

#include <string>

#include "common/random.h"
#include "targets.h"

namespace tutti::fuzz {
namespace {

class AParserOfBytesFromOutside : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(All, AParserOfBytesFromOutside,
                         testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });

std::string changed(std::string bytes, SeededRandom& random) {
  for (std::uint64_t changes = random.next() % 8; changes-- > 0;) {
    const std::size_t at = bytes.empty() ? 0 : random.next() % bytes.size();
    switch (random.next() % 5) {
      case 0: bytes.resize(at); break;
      case 1: bytes.insert(at, 1 + random.next() % 40, static_cast<char>(random.next())); break;
      case 2: bytes += bytes.substr(at); break;
      default:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random.next());
    }
    if (bytes.size() > 100'000) bytes.resize(100'000);
  }
  return bytes;
}

TEST_P(AParserOfBytesFromOutside, WithstandsItsSeedsAndWhatBecomesOfThem) {
  SeededRandom random(20'261);
  for (const std::string& seed : GetParam().seeds()) {
    GetParam().run(seed.substr(0, seed.size() - 1));
    for (int i = 0; i < GetParam().changes; ++i) GetParam().run(changed(seed, random));
  }
}

}  // namespace
}  // namespace tutti::fuzz
