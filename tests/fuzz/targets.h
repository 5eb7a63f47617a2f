// What parses bytes that come from outside, each as a function of bytes: for libFuzzer, which looks
// for bytes that break it, and for the test that runs it over bytes from a seed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::fuzz {

struct Target {
  std::string_view name;
  /// Crashes where something is wrong.
  void (*run)(std::string_view bytes);
  /// Well-formed bytes to begin with.
  std::vector<std::string> (*seeds)();
};

std::span<const Target> targets();

}  // namespace tutti::fuzz
