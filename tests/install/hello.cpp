// A program outside the tree, which is built with nothing but the flags of `pkg-config tutti`.
#include <cstdio>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

int main() {
  std::vector<tutti::Communicator> ranks = tutti::Communicator::in_process(2);
  std::vector<float> sums(ranks.size());
  std::vector<std::thread> threads;
  for (tutti::Communicator& comm : ranks) {
    threads.emplace_back([&comm, &sum = sums[static_cast<std::size_t>(comm.rank())]] {
      sum = static_cast<float>(comm.rank() + 1);
      comm.all_reduce(std::span(&sum, 1), tutti::Op::sum);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("tutti %s: %g %g\n", std::string(tutti::version()).c_str(), double{sums[0]},
              double{sums[1]});
  return sums[0] == 3.0F && sums[1] == 3.0F ? 0 : 1;
}
