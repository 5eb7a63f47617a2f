#include <fmt/format.h>

#include <cstdio>

#include "tools/plan/commands.h"

namespace tutti::tools {

std::vector<Collective> all_collectives() {
  std::vector<Collective> all;
  for (int what = 0; what < kCollectives; ++what) all.push_back(static_cast<Collective>(what));
  return all;
}

Collective collective_named(const std::string& name) {
  std::string known;
  for (const Collective what : all_collectives()) {
    if (to_string(what) == name) return what;
    known += fmt::format(" {}", to_string(what));
  }
  throw CLI::ValidationError(
      fmt::format("no collective is called '{}'; there are:{}", name, known));
}

int prove(std::span<const Schedule> schedules, int window) {
  for (const bool in_place : {false, true}) {
    const Verdict verdict = verify(schedules, {.window = window, .in_place = in_place});
    if (verdict.ok) continue;
    fmt::print(stderr, "tutti-plan: {}{}: {}\n", verdict.too_large ? "not verified" : "rejected",
               in_place ? " in place" : "", verdict.why);
    return verdict.too_large ? kTooLargeStatus : kRejectedStatus;
  }
  fmt::print(stderr, "proved: complete, race-free and deadlock-free with a window of {}\n", window);
  return 0;
}

}  // namespace tutti::tools
