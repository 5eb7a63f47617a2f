// Measures oneCCL on the CPU by the method of method.h; Intel MPI's mpiexec starts its ranks, which
// gives them PMI_RANK and PMI_SIZE.
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>

#include <oneapi/ccl.hpp>

#include "method.h"
#include "shared_folder.h"

namespace tutti::compare {
namespace {

class OneCcl final : public Library {
 public:
  explicit OneCcl(const std::filesystem::path& folder)
      : rank_(number_in_environment("PMI_RANK", "mpiexec")),
        ranks_(number_in_environment("PMI_SIZE", "mpiexec")),
        store_(join(folder / "oneccl", rank_)),
        comm_(ccl::create_communicator(ranks_, rank_, store_)) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  void barrier() override { ccl::barrier(comm_).wait(); }

  double max(double value) override {
    ccl::allreduce(&value, &value, 1, ccl::datatype::float64, ccl::reduction::max, comm_).wait();
    return value;
  }

  // A failed call throws. The same buffer for input and output makes a call one in place.
  std::function<void()> prepare(const Call& call) override {
    constexpr ccl::datatype kType = ccl::datatype::float32;
    constexpr ccl::reduction kSum = ccl::reduction::sum;
    const ccl::communicator& comm = comm_;
    float *const input = call.input, *const output = call.output;
    const std::size_t count = call.count;
    switch (call.operation) {
      case Operation::all_reduce:
      case Operation::all_reduce_in_place:
        return [=, &comm] { ccl::allreduce(input, output, count, kType, kSum, comm).wait(); };
      case Operation::reduce_scatter:
        return [=, &comm] { ccl::reduce_scatter(input, output, count, kType, kSum, comm).wait(); };
      case Operation::all_gather:
        return [=, &comm] { ccl::allgather(input, output, count, kType, comm).wait(); };
      case Operation::all_to_all:
        return [=, &comm] { ccl::alltoall(input, output, count, kType, comm).wait(); };
      case Operation::broadcast:
        return [=, &comm] { ccl::broadcast(output, count, kType, 0, comm).wait(); };
      case Operation::reduce:
        return [=, &comm] { ccl::reduce(input, output, count, kType, kSum, 0, comm).wait(); };
      case Operation::send_recv:
        return round_trip(
            *this, [=, &comm](int peer) { ccl::send(input, count, kType, peer, comm).wait(); },
            [=, &comm](int peer) { ccl::recv(output, count, kType, peer, comm).wait(); });
      case Operation::barrier: return [this] { barrier(); };
    }
    return {};
  }

 private:
  /// Rank 0 makes the store in which ranks find each other, and tells the others its address.
  static ccl::shared_ptr_class<ccl::kvs> join(const std::filesystem::path& path, int rank) {
    ccl::init();
    if (rank == 0) {
      auto store = ccl::create_main_kvs();
      tell(path, store->get_address());
      return store;
    }
    ccl::kvs::address_type address;
    hear(path, address);
    return ccl::create_kvs(address);
  }

  int rank_, ranks_;
  ccl::shared_ptr_class<ccl::kvs> store_;
  ccl::communicator comm_;
};

}  // namespace
}  // namespace tutti::compare

int main(int argc, char** argv) {
  return tutti::compare::run_main("oneccl_bench", [&] {
    if (argc < 2) throw std::invalid_argument("the first argument is a folder that ranks share");
    tutti::compare::OneCcl oneccl(argv[1]);
    return tutti::compare::measure(oneccl, std::span(argv + 1, argv + argc));
  });
}
