#include "tests/interleaving/explore.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

namespace tutti::interleaving {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t kBatch = 50;   // seeds that a process runs before the next is forked
constexpr unsigned kHangSeconds = 60;  // a run that takes so long waits outside of the scheduler
constexpr std::size_t kMostErrors = 20'000;  // bytes that are shown of what a process wrote

struct Unmap {
  void operator()(RunRecord* record) const noexcept { munmap(record, sizeof *record); }
};
using SharedRecord = std::unique_ptr<RunRecord, Unmap>;

SharedRecord shared_record() {
  void* memory =
      mmap(nullptr, sizeof(RunRecord), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory for the record of a run");
  return SharedRecord(new (memory) RunRecord);
}

// All threads of a run share one core: only one of them runs, and the next finds a warm cache.
void use_one_core() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
}

// Calls `work` in a forked process. Returns its wait status, and in `errors` what it wrote.
int in_child(const std::function<void()>& work, std::string& errors) {
  const int file = memfd_create("errors", MFD_CLOEXEC);
  if (file < 0) throw std::runtime_error("no memfd for the errors of a run");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process for a run");
  if (child == 0) {
    dup2(file, STDERR_FILENO);
    use_one_core();
    work();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  const off_t bytes = lseek(file, 0, SEEK_END);
  errors.resize(static_cast<std::size_t>(std::max<off_t>(bytes, 0)));
  if (pread(file, errors.data(), errors.size(), 0) < 0) errors.clear();
  close(file);
  return status;
}

void run_here(const Scenario& scenario, const RunPlan& plan, RunRecord& record) {
  alarm(kHangSeconds);
  Scheduler scheduler(plan, record);
  scheduler.run({[&] { scenario(scheduler); }});
}

std::vector<Switch> switches_of(const RunRecord& record) {
  const auto count = std::min<std::uint64_t>(record.switches, RunRecord::kSwitches);
  return {record.taken.begin(), record.taken.begin() + static_cast<std::ptrdiff_t>(count)};
}

Outcome result_of(const RunRecord& record, int status, std::string errors) {
  Outcome run;
  run.ending = record.ending;
  if (run.ending == Ending::done && status != 0) run.ending = Ending::running;  // died afterwards
  run.hash = record.hash;
  run.steps = record.steps;
  run.switches = switches_of(record);
  run.text = record.text.data();
  if (run.ending == Ending::running)
    run.text = WIFSIGNALED(status)
                   ? fmt::format("the process was ended by signal {} ({}){}", WTERMSIG(status),
                                 strsignal(WTERMSIG(status)),
                                 WTERMSIG(status) == SIGALRM
                                     ? ": a thread waits or loops outside of the scheduler"
                                     : "")
                   : fmt::format("the process ended with status {}", WEXITSTATUS(status));
  run.errors = std::move(errors);
  return run;
}

bool failed(const Outcome& run) { return run.ending != Ending::done; }

// Whether two failures are the same for a shrinker: of a check, the words have to be equal.
bool same(const Outcome& a, const Outcome& b) {
  const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  return a.ending == b.ending && first_line(a.text) == first_line(b.text);
}

// Removes switches as long as the failure stays: first many at a time, then one by one.
std::vector<Switch> shrink(const Scenario& scenario, RunPlan plan, const Outcome& failure,
                           steady_clock::time_point until) {
  std::vector<Switch> kept = failure.switches;
  plan.policy = Policy::calm;
  const auto still_fails = [&](const std::vector<Switch>& some) {
    plan.follow = &some;
    return same(run_once(scenario, plan), failure);
  };
  if (!still_fails(kept)) return kept;
  for (std::size_t part = (kept.size() + 1) / 2; part > 0;) {
    bool removed = false;
    for (std::size_t at = 0; at < kept.size();) {
      if (steady_clock::now() > until) return kept;
      std::vector<Switch> fewer = kept;
      const auto begin = fewer.begin() + static_cast<std::ptrdiff_t>(at);
      fewer.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(part, kept.size() - at)));
      if (still_fails(fewer)) {
        kept = std::move(fewer);
        removed = true;
      } else {
        at += part;
      }
    }
    if (part == 1 && !removed) break;
    if (!removed || part > kept.size()) part = part == 1 ? 1 : (part + 1) / 2;
    if (kept.empty()) break;
  }
  return kept;
}

// Leaves out the frames of the standard library and of the scheduler, and what is too much.
std::string shortened(const std::string& errors) {
  constexpr std::string_view kOthers[] = {"/c++/",
                                          "/interleaving/scheduler.cpp:",
                                          "/interleaving/explore.cpp:",
                                          "/interleaving/sync.h:",
                                          "/interleaving/atomic.h:",
                                          "__sanitizer_print_stack_trace",
                                          "libstdc++",
                                          "/nptl/",
                                          "/sysdeps/"};
  std::string text;
  for (std::size_t at = 0; at < errors.size();) {
    const std::size_t end = std::min(errors.find('\n', at), errors.size() - 1) + 1;
    const std::string_view line(errors.data() + at, end - at);
    at = end;
    const bool is_other = line.starts_with("    #") &&
                          std::any_of(std::begin(kOthers), std::end(kOthers), [&](auto other) {
                            return line.find(other) != std::string_view::npos;
                          });
    if (!is_other) text += line;
  }
  if (text.size() <= kMostErrors) return text;
  return text.substr(0, kMostErrors / 2) + "\n...\n" + text.substr(text.size() - kMostErrors / 2);
}

std::string describe(const Failure& failure, const Outcome& run, std::size_t before) {
  std::string text = fmt::format("{} with seed {} (policy {}): {}\n", to_string(failure.ending),
                                 failure.seed, to_string(failure.policy), failure.text);
  text += fmt::format("Of its {} switches of threads, {} are needed:\n", before,
                      failure.switches.size());
  for (const Switch& each : failure.switches)
    text +=
        fmt::format("  at point {} of thread {}, thread {} goes on\n", each.at, each.from, each.to);
  text += fmt::format("To run it again: --seed={} --policy={}\n", failure.seed,
                      to_string(failure.policy));
  return text + shortened(run.errors);
}

Failure explain(const Scenario& scenario, RunPlan plan, const Outcome& run, bool shrinks) {
  constexpr std::chrono::seconds kShrinkFor{20};
  Failure failure{plan.seed, plan.policy, run.ending, run.text, {}, {}};
  if (!shrinks) {
    failure.switches = run.switches;
    failure.report = describe(failure, run, run.switches.size());
    return failure;
  }
  failure.switches = shrink(scenario, plan, run, steady_clock::now() + kShrinkFor);
  plan.policy = Policy::calm;
  plan.follow = &failure.switches;
  plan.explain = true;
  const Outcome explained = run_once(scenario, plan);
  failure.report = describe(failure, explained, run.switches.size());
  if (!same(explained, run))
    failure.report +=
        "\nIt did not fail so when it was run again: it depends on more than the seed.";
  return failure;
}

}  // namespace

Effort& effort() {
  static Effort of_this_process;
  return of_this_process;
}

Outcome run_once(const Scenario& scenario, const RunPlan& plan) {
  const SharedRecord record = shared_record();
  std::string errors;
  const int status = in_child([&] { run_here(scenario, plan, *record); }, errors);
  return result_of(*record, status, std::move(errors));
}

Exploration explore(const Scenario& scenario, std::uint64_t seeds, const Effort& effort) {
  const auto begin = steady_clock::now();
  Exploration done;
  RunPlan plan;
  const Outcome calm = run_once(scenario, plan);
  if (failed(calm)) {
    done.failure = explain(scenario, plan, calm, effort.shrinks);
    return done;
  }
  plan.usual_steps = calm.steps;
  const SharedRecord record = shared_record();
  const auto plan_of = [&](std::uint64_t seed) {
    RunPlan one = plan;
    one.seed = seed;
    one.policy = effort.policy.value_or(policy_of(seed));
    return one;
  };
  const std::uint64_t end = effort.first_seed + seeds;
  for (std::uint64_t seed = effort.first_seed; seed < end && !done.failure;) {
    const std::uint64_t batch_end = std::min(seed + kBatch, end);
    std::uint64_t* const steps = &record->total_steps;
    *steps = 0;
    std::string errors;
    const int status = in_child(
        [&] {
          for (; seed < batch_end; ++seed) {
            run_here(scenario, plan_of(seed), *record);
            *steps += record->steps;
          }
        },
        errors);
    const Outcome last = result_of(*record, status, std::move(errors));
    done.seeds += record->seed - seed + 1;
    done.steps += *steps;
    seed = batch_end;
    done.seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
    if (failed(last)) done.failure = explain(scenario, plan_of(record->seed), last, effort.shrinks);
    if (steady_clock::now() - begin > effort.most_time) break;
  }
  return done;
}

void explore(const Scenario& scenario, std::uint64_t seeds) {
  const Effort& wanted = effort();
  const std::uint64_t count = wanted.single ? 1 : wanted.seeds > 0 ? wanted.seeds : seeds;
  const Exploration done = explore(scenario, count, wanted);
  std::printf("%llu seeds, %llu steps, %.1f s\n", static_cast<unsigned long long>(done.seeds),
              static_cast<unsigned long long>(done.steps), done.seconds);
  testing::Test::RecordProperty("seeds", std::to_string(done.seeds));
  if (done.failure) ADD_FAILURE() << done.failure->report;
}

}  // namespace tutti::interleaving
