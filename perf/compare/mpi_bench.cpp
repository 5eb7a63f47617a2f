// Measures an MPI library by the method of method.h; the driver builds it with each library's
// compiler.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <span>

#include "method.h"

namespace tutti::compare {
namespace {

class Mpi final : public Library {
 public:
  Mpi() {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &ranks_);
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  void barrier() override { MPI_Barrier(comm_); }

  double max(double value) override {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, comm_);
    return value;
  }

  // A failed call ends the program: MPI_ERRORS_ARE_FATAL is the default.
  std::function<void()> prepare(const Call& call) override {
    const MPI_Comm comm = comm_;
    float *const input = call.input, *const output = call.output;
    const int count = static_cast<int>(call.count);
    switch (call.operation) {
      case Operation::all_reduce:
        return [=] { MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, comm); };
      case Operation::all_reduce_in_place:
        return [=] { MPI_Allreduce(MPI_IN_PLACE, output, count, MPI_FLOAT, MPI_SUM, comm); };
      case Operation::reduce_scatter:
        return [=] { MPI_Reduce_scatter_block(input, output, count, MPI_FLOAT, MPI_SUM, comm); };
      case Operation::all_gather:
        return [=] { MPI_Allgather(input, count, MPI_FLOAT, output, count, MPI_FLOAT, comm); };
      case Operation::all_to_all:
        return [=] { MPI_Alltoall(input, count, MPI_FLOAT, output, count, MPI_FLOAT, comm); };
      case Operation::broadcast: return [=] { MPI_Bcast(output, count, MPI_FLOAT, 0, comm); };
      case Operation::reduce:
        return [=] { MPI_Reduce(input, output, count, MPI_FLOAT, MPI_SUM, 0, comm); };
      case Operation::send_recv:
        return round_trip(
            *this, [=](int peer) { MPI_Send(input, count, MPI_FLOAT, peer, 0, comm); },
            [=](int peer) {
              MPI_Recv(output, count, MPI_FLOAT, peer, 0, comm, MPI_STATUS_IGNORE);
            });
      case Operation::barrier: return [=] { MPI_Barrier(comm); };
    }
    return {};
  }

 private:
  MPI_Comm comm_ = MPI_COMM_WORLD;
  int rank_ = 0, ranks_ = 0;
};

}  // namespace
}  // namespace tutti::compare

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    tutti::compare::Mpi mpi;
    const int status = tutti::compare::measure(mpi, std::span(argv + 1, argv + argc));
    MPI_Finalize();
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_bench: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
}
