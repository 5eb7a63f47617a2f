// A job for the tests of tutti-trace, in which something is wrong.
//
// usage: traced_program <what>    slow: rank 1 comes late to each of 30 calls, and all ranks wait
//                                 then; alive: it goes on so; absent: rank 1 does not come to the
//                                 third call; cycle: each rank receives from the next; different:
//                                 rank 1 makes another call; group: two communicators, then waits;
//                                 agree, shrink: rank 1 does not call it; grow: nobody comes
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

namespace {

void say(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
}

void wait_for_the_end() {
  say("waits");
  for (;;) pause();
}

void come_late(tutti::Communicator& comm, int calls) {
  std::vector<float> values(2, 1);
  for (int call = 0; call != calls; ++call) {
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    comm.all_reduce(std::span(values));
    if (call == 5) say("goes on");
  }
}

void run(std::string_view what) {
  auto comm = tutti::Communicator::from_env();
  std::vector<float> values(2, 1);
  comm.barrier();
  if (what == "slow" || what == "alive") come_late(comm, what == "slow" ? 30 : -1);
  if (what == "absent") {
    comm.all_reduce(std::span(values));
    if (comm.rank() == 1) wait_for_the_end();
    say("calls");
    comm.all_reduce(std::span(values));
  }
  if (what == "cycle") {
    say("calls");
    comm.recv(std::span(values), (comm.rank() + 1) % comm.size());
  }
  if (what == "different") {
    std::vector<float> all(2 * static_cast<std::size_t>(comm.size()));
    if (comm.rank() == 1)
      comm.all_gather(std::span<const float>(values), std::span(all));
    else
      comm.all_reduce(std::span(values));
  }
  constexpr std::chrono::minutes kPatience{10};
  if ((what == "agree" || what == "shrink") && comm.rank() == 1) wait_for_the_end();
  if (what == "agree") static_cast<void>(comm.agree(1, kPatience));
  if (what == "shrink") static_cast<void>(comm.shrink(kPatience));
  if (what == "grow") static_cast<void>(comm.grow(1, kPatience));
  if (what == "group") {
    auto half = comm.split(comm.rank() % 2, 0);
    half->all_reduce(std::span(values), tutti::Op::max);
  }
  wait_for_the_end();
}

}  // namespace

int main(int, char** argv) {
  try {
    run(argv[1]);
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
