// Measures tutti by the method of method.h; tutti-run starts its ranks.
#include <span>

#include <tutti/tutti.hpp>

#include "method.h"

namespace tutti::compare {
namespace {

class Tutti final : public Library {
 public:
  [[nodiscard]] int rank() const override { return comm_.rank(); }
  [[nodiscard]] int ranks() const override { return comm_.size(); }
  void barrier() override { comm_.barrier(); }

  double max(double value) override {
    comm_.all_reduce(std::span(&value, 1), Op::max);
    return value;
  }

  std::function<void()> prepare(const Call& call) override {
    constexpr DataType kType = DataType::f32;
    Communicator& comm = comm_;
    float *const input = call.input, *const output = call.output;
    const std::size_t count = call.count;
    switch (call.operation) {
      case Operation::all_reduce:
      case Operation::all_reduce_in_place:
        return [=, &comm] { comm.all_reduce(input, output, count, kType, Op::sum); };
      case Operation::reduce_scatter:
        return [=, &comm] { comm.reduce_scatter(input, output, count, kType, Op::sum); };
      case Operation::all_gather:
        return [=, &comm] { comm.all_gather(input, output, count, kType); };
      case Operation::all_to_all:
        return [=, &comm] { comm.all_to_all(input, output, count, kType); };
      case Operation::broadcast: return [=, &comm] { comm.broadcast(output, count, kType, 0); };
      case Operation::reduce:
        return [=, &comm] { comm.reduce(input, output, count, kType, Op::sum, 0); };
      case Operation::send_recv:
        return round_trip(
            *this, [=, &comm](int peer) { comm.send(input, count, kType, peer, 0); },
            [=, &comm](int peer) { comm.recv(output, count, kType, peer, 0); });
      case Operation::barrier: return [&comm] { comm.barrier(); };
    }
    return {};
  }

 private:
  Communicator comm_ = Communicator::from_env();
};

}  // namespace
}  // namespace tutti::compare

int main(int argc, char** argv) {
  return tutti::compare::run_main("tutti_bench", [&] {
    tutti::compare::Tutti tutti;
    return tutti::compare::measure(tutti, std::span(argv + 1, argv + argc));
  });
}
