// An algorithm of the program's own: it is written, printed, verified and run, and a wrong one is
// refused.
#include <cstdio>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include <tutti/schedule.hpp>
#include <tutti/tutti.hpp>

namespace {

using namespace tutti;

constexpr int kRanks = 4;
constexpr std::size_t kCount = 1 << 20;

/// An all_reduce through rank 0, which adds everyone's input in the order of ranks.
Schedule star(const PlanRequest& request) {
  ScheduleBuilder plan(request, 1);
  const Verbs lane = plan.lane();
  Peers others;
  for (int rank = 1; rank < request.ranks; ++rank) others.push_back(rank);
  if (request.rank == 0) {
    lane.reduce_copy_send(in_rank_order(request, 0), 0, others).completes();
  } else {
    lane.send(0, {0});
    lane.receive(0, 0);
  }
  return std::move(plan).finish();
}

/// The same algorithm, except that rank 0 forgets the last rank's input.
Schedule forgetful_star(const PlanRequest& request) {
  Schedule schedule = star(request);
  if (request.rank == 0) schedule.lanes[0].steps[0].in.pop_back();
  return schedule;
}

void show(bool as_picture) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < kRanks; ++rank)
    schedules.push_back(star({Collective::all_reduce, rank, kRanks}));
  if (as_picture)
    std::printf("%s", to_dot(schedules).c_str());
  else
    for (const Schedule& schedule : schedules) std::printf("%s\n", to_text(schedule).c_str());
}

/// Runs one rank. Returns whether the results are as expected.
bool run(Communicator& comm) {
  CallOptions options;
  std::vector<float> data(kCount, static_cast<float>(comm.rank() + 1));

  comm.add_algorithm("forgetful", forgetful_star);
  options.algorithm = "forgetful";
  bool refused = false;
  try {
    comm.all_reduce(std::span(data), Op::sum, options);
  } catch (const Error& error) {  // nothing was sent, and the communicator can still be used
    refused = error.kind() == ErrorKind::usage;
    if (comm.rank() == 0) std::printf("refused: %s\n", error.what());
  }

  comm.add_algorithm("star", star);
  options.algorithm = "star";
  comm.all_reduce(std::span(data), Op::sum, options);
  std::size_t right = 0;
  for (const float value : data) right += value == kRanks * (kRanks + 1) / 2;
  if (comm.rank() == 0) std::printf("star: %zu of %zu elements are right\n", right, kCount);
  return refused && right == kCount;
}

}  // namespace

int main(int argc, char** argv) {
  const bool as_picture = argc > 1 && std::string_view(argv[1]) == "--dot";
  show(as_picture);
  if (as_picture) return 0;

  std::vector<Communicator> ranks = Communicator::in_process(kRanks);
  std::vector<char> ok(kRanks);
  std::vector<std::thread> threads;
  for (Communicator& comm : ranks)
    threads.emplace_back([&] { ok[static_cast<std::size_t>(comm.rank())] = run(comm); });
  for (std::thread& thread : threads) thread.join();
  return ok == std::vector<char>(kRanks, 1) ? 0 : 1;
}
