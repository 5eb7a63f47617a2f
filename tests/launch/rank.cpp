// A rank as a user writes it. It joins the job that its launcher describes, sums, and prints its
// rank.
//
// usage: rank [times]   joins that often, one communicator after the other
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <tutti/tutti.hpp>

namespace {

void meet() {
  auto comm = tutti::Communicator::from_env();
  std::vector<double> data(1000, comm.rank() + 1);
  comm.all_reduce(std::span(data));
  std::printf("rank %d of %d: sum %g\n", comm.rank(), comm.size(), data.back());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (int times = argc > 1 ? std::atoi(argv[1]) : 1; times-- > 0;) meet();
    return 0;
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
