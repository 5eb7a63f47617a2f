// A rank of a job whose all_reduce is checked again and again, for real.py.
//
// usage: worker <rounds> <elements> [buffers]; the launcher's environment says which rank it is.
// With `buffers`, the all_reduce is in a Buffer, and rank 0 also sends its Buffer to the last rank.
//
// Writes "ready" after the first round. Exit status: 0 after all rounds, 1 where a result is wrong,
// 3 where a call or the start has failed, with "<kind>: <text>" on standard output.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include <tutti/buffer.hpp>
#include <tutti/communicator.hpp>
#include <tutti/error.hpp>

namespace {

// Sends a buffer of rank 0 to the last rank. Returns whether it arrives.
bool send_whole(tutti::Communicator& communicator, std::span<std::int64_t> data,
                std::uint64_t round) {
  const auto value = [&](std::size_t i) { return static_cast<std::int64_t>(round * 31 + i); };
  const int last = communicator.size() - 1;
  if (communicator.rank() == 0) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(i);
    communicator.send(std::span<const std::int64_t>(data), last);
  } else if (communicator.rank() == last) {
    communicator.recv(data, 0);
    for (std::size_t i = 0; i < data.size(); ++i)
      if (data[i] != value(i)) return false;
  }
  return true;
}

int work(std::uint64_t rounds, std::size_t elements, bool buffers) {
  auto communicator = tutti::Communicator::from_env();
  const auto rank = static_cast<std::int64_t>(communicator.rank());
  const std::int64_t size = communicator.size();
  std::vector<std::int64_t> own(buffers ? 0 : elements);
  const auto buffer =
      tutti::Buffer::allocate(communicator, buffers ? elements * sizeof(std::int64_t) : 0);
  const std::span<std::int64_t> data = buffers ? buffer.as<std::int64_t>() : std::span(own);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const auto base = static_cast<std::int64_t>(round);
    for (std::size_t i = 0; i < elements; ++i)
      data[i] = base + rank * static_cast<std::int64_t>(i % 1000);
    communicator.all_reduce(data, tutti::Op::sum);
    const std::int64_t ranks_sum = size * (size - 1) / 2;
    for (std::size_t i = 0; i < elements; ++i)
      if (data[i] != size * base + ranks_sum * static_cast<std::int64_t>(i % 1000)) {
        std::printf("round %llu: element %zu is wrong\n", static_cast<unsigned long long>(round),
                    i);
        return 1;
      }
    if (buffers && !send_whole(communicator, data, round)) {
      std::puts("a message is wrong");
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
  if (count != 3 && count != 4) return 2;
  try {
    return work(std::strtoull(arguments[1], nullptr, 10), std::strtoull(arguments[2], nullptr, 10),
                count == 4);
  } catch (const tutti::Error& error) {
    std::printf("%s: %s\n", std::string(tutti::to_string(error.kind())).c_str(), error.what());
    return 3;
  }
}
