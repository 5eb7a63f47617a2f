// A program in C++ outside tutti's tree: it does the same as embed.c, with exceptions.
#include <cstdio>
#include <exception>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

int average_a_gradient() {
  tutti::Communicator comm = tutti::Communicator::from_env();
  const int rank = comm.rank(), ranks = comm.size();
  std::vector<float> gradient(1 << 20);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = static_cast<float>(rank) + static_cast<float>(i % 8);

  tutti::CallOptions options;
  options.timeout = std::chrono::seconds(30);
  tutti::Work work = comm.all_reduce_async(std::span(gradient), tutti::Op::sum, options);
  // ... the program's own work goes here ...
  work.wait();

  int wrong = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i)
    wrong += gradient[i] != static_cast<float>(ranks * (ranks - 1) / 2 + ranks * int(i % 8));
  std::printf("C++: rank %d of %d: gradient[1] is %g, %d wrong\n", rank, ranks,
              static_cast<double>(gradient[1]), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return average_a_gradient();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
