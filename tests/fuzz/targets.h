// The parsers of bytes that come from outside, each as a function of bytes. libFuzzer searches for
// bytes that break them, and a test runs them on bytes drawn from a seed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::fuzz {

struct Target {
  std::string_view name;
  /// Runs the parser, and crashes if anything is wrong.
  void (*run)(std::string_view bytes);
  /// Returns well-formed inputs with which the search begins.
  std::vector<std::string> (*seeds)();
};

std::span<const Target> targets();

}  // namespace tutti::fuzz
