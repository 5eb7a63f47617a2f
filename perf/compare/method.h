// The method by which every library is measured, and the interface of a library for it.
#pragma once

#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <span>

namespace tutti::compare {

enum class Operation {
  all_reduce,
  all_reduce_in_place,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,  // copies the output of rank 0, in place as in all libraries
  reduce,     // to rank 0
  send_recv,  // a message and its answer, between ranks 0 and 1, 2 and 3, ...
  barrier,
};

/// A call on f32: `count` elements in each block, or in the only block if nothing is split.
/// Reductions are sums.
struct Call {
  Operation operation;
  float *input, *output;
  std::size_t count;
};

/// Returns the rank that takes part in send_recv with this one, or -1.
[[nodiscard]] int partner(int rank, int ranks) noexcept;

/// One rank of a library that is measured. Errors are exceptions, or end the program.
class Library {
 public:
  virtual ~Library() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int ranks() const = 0;
  virtual void barrier() = 0;
  /// Returns the greatest value of all ranks.
  [[nodiscard]] virtual double max(double value) = 0;
  /// Returns a function that makes the call each time it is run; empty if the library has no such
  /// operation. What a program would do once, not at every call, is done here.
  [[nodiscard]] virtual std::function<void()> prepare(const Call& call) = 0;
};

/// Returns the call of send_recv, made of a function that sends to a peer and one that receives
/// from it: the lower of two partners sends first. A rank without a partner does nothing.
[[nodiscard]] std::function<void()> round_trip(const Library& library,
                                               std::function<void(int)> send,
                                               std::function<void(int)> receive);

/// Returns a number that a launcher has put into the environment.
[[nodiscard]] int number_in_environment(const char* name, const char* launcher);

/// Measures a library. `arguments` are a folder that the ranks share, an operation, and sizes in
/// bytes.
///
/// For each size it measures the one-way time of a cache line; then, after one call and a barrier,
/// calls back to back for at least ten milliseconds, of which the slowest rank's mean counts; then
/// the one-way time again; then it makes one call whose results are checked. If "+written" follows
/// the operation, each rank writes all data that it sends before each call, like a program that
/// computes it, and the time of the writing alone is subtracted.
///
/// A size is that of the larger buffer, with at least 4 bytes in each block. Rank 0 prints a line
/// of JSON for each size. If there are no more ranks than cores, each rank is bound to one core; a
/// launcher should not do so, since a library's own threads stay where they started. If there are
/// more, and COMPARE_MACHINES gives a number of machines in a box, each machine gets its own share
/// of the cores.
///
/// Returns the exit status, which is 1 if a result is wrong.
int measure(Library& library, std::span<char* const> arguments);

/// Returns the exit status of main(): that of `measures`, or 1 after an exception, which is printed
/// behind `name`.
template <typename Measures>
int run_main(const char* name, Measures measures) {
  try {
    return measures();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace tutti::compare
