#include "method.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "perf/cores.h"
#include "perf/iterations.h"
#include "perf/limits.h"
#include "perf/pages.h"
#include "perf/pattern.h"

namespace tutti::compare {
namespace {

constexpr std::pair<std::string_view, Operation> kOperations[] = {
    {"all_reduce", Operation::all_reduce},
    {"all_reduce_in_place", Operation::all_reduce_in_place},
    {"reduce_scatter", Operation::reduce_scatter},
    {"all_gather", Operation::all_gather},
    {"all_to_all", Operation::all_to_all},
    {"broadcast", Operation::broadcast},
    {"reduce", Operation::reduce},
    {"send_recv", Operation::send_recv},
    {"barrier", Operation::barrier},
};

constexpr std::string_view kWritten = "+written";

Operation operation_of(std::string_view name) {
  for (const auto& [known, operation] : kOperations)
    if (known == name) return operation;
  throw std::invalid_argument("no such operation: " + std::string(name));
}

/// Measures the machine on rank 0, while the other ranks must leave it alone. A rank that waits in
/// a library's barrier keeps its core busy, so they sleep until a number in a shared page changes.
class Machine {
 public:
  Machine(const std::string& folder, int core_a, int core_b) : limits_(core_a, core_b) {
    const int file = ::open((folder + "/page").c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ::ftruncate(file, kBytes) != 0)
      throw std::runtime_error("no shared page in " + folder + ": " + std::strerror(errno));
    void* page = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (page == MAP_FAILED) throw std::bad_alloc();
    measured_ = static_cast<std::atomic<std::uint32_t>*>(page);
  }
  ~Machine() { ::munmap(measured_, kBytes); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Returns the time on rank 0, and 0 on the others.
  double one_way_ns(Library& library) {
    library.barrier();
    ++turn_;
    double time_ns = 0;
    if (library.rank() == 0) {
      time_ns = limits_.one_way_ns();
      measured_->store(turn_, std::memory_order_release);
    }
    while (measured_->load(std::memory_order_acquire) < turn_)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    return time_ns;
  }

 private:
  static constexpr std::size_t kBytes = 4096;
  perf::Limits limits_;
  std::atomic<std::uint32_t>* measured_;
  std::uint32_t turn_ = 0;
};

bool splits_input(Operation what) {
  return what == Operation::reduce_scatter || what == Operation::all_to_all;
}
bool splits_output(Operation what) {
  return what == Operation::all_gather || what == Operation::all_to_all;
}
bool sums(Operation what) {
  return what == Operation::all_reduce || what == Operation::all_reduce_in_place ||
         what == Operation::reduce || what == Operation::reduce_scatter;
}

/// One operation of one size, on one rank.
class Case {
 public:
  Case(Library& library, Operation what, bool written, std::size_t bytes)
      : library_(library),
        written_(written),
        rank_(static_cast<std::size_t>(library.rank())),
        ranks_(static_cast<std::size_t>(library.ranks())),
        count_(std::max<std::size_t>(
            1, bytes / sizeof(float) / (splits_input(what) || splits_output(what) ? ranks_ : 1))),
        input_count_(count_ * (splits_input(what) ? ranks_ : 1)),
        output_count_(count_ * (splits_output(what) ? ranks_ : 1)),
        input_(perf::allocate_pages(input_count_ * sizeof(float))),
        output_(perf::allocate_pages(output_count_ * sizeof(float))),
        call_{what, floats(in_place(what) ? output_ : input_), floats(output_), count_},
        run_(library.prepare(call_)) {}

  [[nodiscard]] bool offered() const { return static_cast<bool>(run_); }

  double mean_us() {
    std::int64_t calls = perf::kFewestIterations;
    while (true) {
      double total_us = time_calls(calls, [this] { one_call(); });
      if (written_) total_us -= time_calls(calls, [this] { write_source(); });
      const double time_us = total_us / static_cast<double>(calls);
      if (perf::is_enough(calls, time_us))
        return call_.operation == Operation::send_recv ? time_us / 2 : time_us;
      calls = perf::more_iterations(calls, time_us);
    }
  }

  /// Returns the number of wrong elements of one call, on the rank that has most.
  long wrong() {
    if (call_.operation == Operation::barrier) return 0;
    const perf::Pattern pattern(DataType::f32, sums(call_.operation) ? Op::sum : Op::max,
                                static_cast<int>(ranks_), 1, std::max(input_count_, output_count_));
    std::memset(output_.get(), 0xff, output_count_ * sizeof(float));  // not a number
    pattern.write(reinterpret_cast<std::byte*>(source()), 0, input_count_, library_.rank());
    run_();
    const std::size_t wrong = has_result() ? wrong_elements(pattern) : 0;
    return static_cast<long>(library_.max(static_cast<double>(wrong)));
  }

 private:
  static bool in_place(Operation what) {
    return what == Operation::all_reduce_in_place || what == Operation::broadcast;
  }

  static float* floats(const perf::Pages& pages) { return reinterpret_cast<float*>(pages.get()); }

  [[nodiscard]] bool has_result() const {
    if (call_.operation == Operation::reduce) return rank_ == 0;
    return call_.operation != Operation::send_recv ||
           partner(library_.rank(), library_.ranks()) >= 0;
  }

  [[nodiscard]] std::size_t wrong_elements(const perf::Pattern& pattern) const {
    const Operation what = call_.operation;
    const std::byte* output = output_.get();
    const std::size_t first = splits_input(what) ? rank_ * count_ : 0;  // of this rank's block
    if (sums(what)) return pattern.wrong_reduced(output, first, count_);
    if (what == Operation::broadcast) return pattern.wrong_copied(output, 0, count_, 0);
    if (what == Operation::send_recv)
      return pattern.wrong_copied(output, 0, count_, partner(library_.rank(), library_.ranks()));
    std::size_t wrong = 0;
    for (int peer = 0; peer < library_.ranks(); ++peer, output += count_ * sizeof(float))
      wrong += pattern.wrong_copied(output, first, count_, peer);
    return wrong;
  }

  /// Returns the buffer that this rank sends, which is the output at the root of a broadcast.
  float* source() const {
    return call_.operation == Operation::broadcast && rank_ == 0 ? call_.output : call_.input;
  }

  void write_source() {
    const bool sends = call_.operation != Operation::broadcast || rank_ == 0;
    if (sends) std::fill_n(source(), input_count_, 0.0F);
    __asm__ volatile("" ::: "memory");  // keeps the compiler from writing once for all calls
  }

  void one_call() {
    if (written_) write_source();
    run_();
  }

  /// Returns the time of that many calls on the slowest rank.
  template <typename One>
  double time_calls(std::int64_t calls, One one) {
    one_call();
    library_.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) one();
    const auto passed = std::chrono::steady_clock::now() - start;
    return library_.max(std::chrono::duration<double, std::micro>(passed).count());
  }

  Library& library_;
  bool written_;
  std::size_t rank_, ranks_;
  std::size_t count_, input_count_, output_count_;
  perf::Pages input_, output_;
  Call call_;
  std::function<void()> run_;
};

// Binds the rank as measure() describes.
void place(const Library& library, std::span<const int> cores) {
  const auto rank = static_cast<std::size_t>(library.rank());
  const auto ranks = static_cast<std::size_t>(library.ranks());
  const char* told = std::getenv("COMPARE_MACHINES");
  const std::size_t machines = told == nullptr ? 1 : std::strtoul(told, nullptr, 10);
  if (ranks <= cores.size())
    perf::pin(cores[rank]);
  else if (machines > 1 && machines <= cores.size())
    perf::pin(cores.subspan(rank / (ranks / machines) * (cores.size() / machines),
                            cores.size() / machines));
}

}  // namespace

int partner(int rank, int ranks) noexcept {
  const int other = rank ^ 1;
  return other < ranks ? other : -1;
}

std::function<void()> round_trip(const Library& library, std::function<void(int)> send,
                                 std::function<void(int)> receive) {
  const int peer = partner(library.rank(), library.ranks());
  if (peer < 0) return [] {};
  if (library.rank() < peer) return [=] { send(peer), receive(peer); };
  return [=] { receive(peer), send(peer); };
}

int number_in_environment(const char* name, const char* launcher) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error(std::string(name) + " is not set: use " + launcher);
  return std::atoi(text);
}

int measure(Library& library, std::span<char* const> arguments) {
  if (arguments.size() < 3) throw std::invalid_argument("usage: <folder> <operation> <bytes> ...");
  std::string_view name = arguments[1];
  const bool written = name.ends_with(kWritten);
  if (written) name.remove_suffix(kWritten.size());
  const Operation what = operation_of(name);
  const std::vector<int> cores = perf::allowed_cores();
  place(library, cores);
  Machine machine(arguments[0], cores.front(), cores[cores.size() > 1 ? 1 : 0]);
  bool all_right = true;
  for (const char* size : arguments.subspan(2)) {
    const std::size_t bytes = std::strtoull(size, nullptr, 10);
    Case one(library, what, written, bytes);
    if (!one.offered()) break;
    const double before_ns = machine.one_way_ns(library);
    const double time_us = one.mean_us();
    const double after_ns = machine.one_way_ns(library);
    const long wrong = one.wrong();
    all_right = all_right && wrong == 0;
    if (library.rank() == 0) {
      std::printf(
          "{\"size\": %zu, \"time_us\": %.17g, \"one_way_ns\": [%.17g, %.17g], \"wrong\": %ld}\n",
          bytes, time_us, before_ns, after_ns, wrong);
      std::fflush(stdout);
    }
  }
  library.barrier();
  return all_right ? 0 : 1;
}

}  // namespace tutti::compare
