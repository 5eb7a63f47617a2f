// Runs worlds by hand: one seed, which it makes smaller if it fails, or many.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include "world.h"

namespace {

using namespace tutti::worlds;

struct Wishes {
  std::uint64_t seed = 0, count = 1;
  double seconds = 0;
  std::string transport = "all";
  bool keeps_size = false;
};

// The transports between which --transport all changes from seed to seed. Most worlds are over
// those that are cheap.
std::string transport_of(const Wishes& wishes, std::uint64_t seed) {
  constexpr std::array kAll{
      "local",        "faulty-local", "faulty-local",  "faulty-local", "faulty-shm", "local",
      "faulty-local", "faulty-local", "faulty-stream", "local",        "verbs",      "faulty-local",
      "stream",       "shm",          "tcp",           "faulty-verbs", "faulty-tcp"};
  return wishes.transport == "all" ? kAll[seed % kAll.size()] : wishes.transport;
}

int replay(std::uint64_t seed, const std::string& transport, bool keeps_size) {
  const Plan plan = plan_of(seed, transport);
  const Outcome outcome = run(plan);
  fmt::print("{}{} calls, {} errors\n", describe(plan), outcome.calls, outcome.errors);
  if (outcome.wrong.empty()) return 0;
  fmt::print("WRONG: {}\nreplay: worlds --seed {} --transport {}\n", outcome.wrong, seed,
             transport);
  std::fflush(stdout);
  if (keeps_size) return 1;
  const Plan least = shrunk(plan);
  fmt::print("\nThe smallest world that was found to fail:\n{}WRONG: {}\n", describe(least),
             run(least).wrong);
  return 1;
}

int run_many(const Wishes& wishes) {
  const auto begun = std::chrono::steady_clock::now();
  const auto age = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  std::uint64_t done = 0, calls = 0, errors = 0;
  for (; wishes.seconds > 0 ? age() < wishes.seconds : done < wishes.count; ++done) {
    const std::uint64_t seed = wishes.seed + done;
    const std::string transport = transport_of(wishes, seed);
    const Outcome outcome = run(plan_of(seed, transport));
    calls += outcome.calls;
    errors += outcome.errors;
    if (outcome.wrong.empty()) continue;
    fmt::print("seed {} of {} fails after {} seeds in {:.1f} s: {}\n", seed, transport, done + 1,
               age(), outcome.wrong);
    std::fflush(stdout);
    replay(seed, transport, wishes.keeps_size);
    return 1;
  }
  fmt::print(
      "{} seeds from {}, {}: {} calls, {} errors that were allowed, {:.1f} s, {:.0f} seeds/s\n",
      done, wishes.seed, wishes.transport, calls, errors, age(), static_cast<double>(done) / age());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Wishes wishes;
  CLI::App app("Runs seeded worlds of ranks with faults, see docs/faults.md");
  app.add_option("--seed", wishes.seed, "the first seed");
  app.add_option("--count", wishes.count, "how many seeds");
  app.add_option("--seconds", wishes.seconds, "runs seeds for so long instead");
  app.add_option("--transport", wishes.transport,
                 "local, stream, shm, tcp or verbs, or faulty- and one of them; all: in turn");
  app.add_flag("--keep-size", wishes.keeps_size, "does not look for a smaller world that fails");
  CLI11_PARSE(app, argc, argv);
  if (wishes.count == 1 && wishes.seconds == 0)
    return replay(wishes.seed, transport_of(wishes, wishes.seed), wishes.keeps_size);
  return run_many(wishes);
}
