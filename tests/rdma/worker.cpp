// A rank of a job whose all_reduce is checked again and again, for real.py.
//
// usage: worker <rounds> <elements>; the launcher's environment says which rank it is.
//
// Writes "ready" after the first round. Exit status: 0 after all rounds, 1 where a result is wrong,
// 3 where a call or the start has failed, with "<kind>: <text>" on standard output.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/error.hpp>

namespace {

int work(std::uint64_t rounds, std::size_t elements) {
  auto communicator = tutti::Communicator::from_env();
  const auto rank = static_cast<std::int64_t>(communicator.rank());
  const std::int64_t size = communicator.size();
  std::vector<std::int64_t> data(elements);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const auto base = static_cast<std::int64_t>(round);
    for (std::size_t i = 0; i < elements; ++i)
      data[i] = base + rank * static_cast<std::int64_t>(i % 1000);
    communicator.all_reduce(std::span(data), tutti::Op::sum);
    const std::int64_t ranks_sum = size * (size - 1) / 2;
    for (std::size_t i = 0; i < elements; ++i)
      if (data[i] != size * base + ranks_sum * static_cast<std::int64_t>(i % 1000)) {
        std::printf("round %llu: element %zu is wrong\n", static_cast<unsigned long long>(round),
                    i);
        return 1;
      }
    if (round == 0) {
      std::puts("ready");
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    return work(std::strtoull(arguments[1], nullptr, 10), std::strtoull(arguments[2], nullptr, 10));
  } catch (const tutti::Error& error) {
    std::printf("%s: %s\n", std::string(tutti::to_string(error.kind())).c_str(), error.what());
    return 3;
  }
}
