// Measures Gloo over TCP, its only transport, by the method of method.h: on the loopback, or on the
// interface COMPARE_INTERFACE. RANK and WORLD_SIZE have the meaning that tutti-run gives them.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "method.h"

namespace tutti::compare {
namespace {

class Gloo final : public Library {
 public:
  explicit Gloo(const std::string& folder)
      : context_(std::make_shared<gloo::rendezvous::Context>(
            number_in_environment("RANK", "tutti-run"),
            number_in_environment("WORLD_SIZE", "tutti-run"))) {
    gloo::transport::tcp::attr network;
    const char* interface = std::getenv("COMPARE_INTERFACE");
    network.iface = interface == nullptr ? "lo" : interface;
    auto device = gloo::transport::tcp::CreateDevice(network);
    gloo::rendezvous::FileStore store(folder);
    context_->connectFullMesh(store, device);
  }
  [[nodiscard]] int rank() const override { return context_->rank; }
  [[nodiscard]] int ranks() const override { return context_->size; }

  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  double max(double value) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(&value, 1);
    options.setReduceFunction(Reduction(&gloo::max<double>));
    gloo::allreduce(options);
    return value;
  }

  // Options are the objects that Gloo lets a program keep from call to call.
  std::function<void()> prepare(const Call& call) override {
    const auto n = static_cast<std::size_t>(ranks());
    float *const input = call.input, *const output = call.output;
    const std::size_t count = call.count;
    switch (call.operation) {
      case Operation::all_reduce:
      case Operation::all_reduce_in_place: return all_reduce(call);
      case Operation::reduce_scatter: return {};  // Gloo has only a class that overwrites its input
      case Operation::all_gather: {
        auto options = std::make_shared<gloo::AllgatherOptions>(context_);
        options->setInput(input, count);
        options->setOutput(output, count * n);
        return [options] { gloo::allgather(*options); };
      }
      case Operation::all_to_all: {
        auto options = std::make_shared<gloo::AlltoallOptions>(context_);
        options->setInput(input, count * n);
        options->setOutput(output, count * n);
        return [options] { gloo::alltoall(*options); };
      }
      case Operation::broadcast: {
        auto options = std::make_shared<gloo::BroadcastOptions>(context_);
        options->setOutput(output, count);
        options->setRoot(0);
        return [options] { gloo::broadcast(*options); };
      }
      case Operation::reduce: return reduce(call);
      case Operation::send_recv: return exchange(call);
      case Operation::barrier: return [this] { barrier(); };
    }
    return {};
  }

 private:
  using Reduction = void (*)(void*, const void*, const void*, std::size_t);

  std::function<void()> all_reduce(const Call& call) {
    auto options = std::make_shared<gloo::AllreduceOptions>(context_);
    if (call.input != call.output) options->setInput(call.input, call.count);
    options->setOutput(call.output, call.count);
    options->setReduceFunction(Reduction(&gloo::sum<float>));
    return [options] { gloo::allreduce(*options); };
  }

  std::function<void()> reduce(const Call& call) {
    auto options = std::make_shared<gloo::ReduceOptions>(context_);
    options->setInput(call.input, call.count);
    options->setOutput(call.output, call.count);
    options->setRoot(0);
    options->setReduceFunction(Reduction(&gloo::sum<float>));
    return [options] { gloo::reduce(*options); };
  }

  std::function<void()> exchange(const Call& call) {
    const std::size_t bytes = call.count * sizeof(float);
    std::shared_ptr input = context_->createUnboundBuffer(call.input, bytes);
    std::shared_ptr output = context_->createUnboundBuffer(call.output, bytes);
    return round_trip(
        *this,
        [input](int peer) {
          input->send(peer, kSlot);
          input->waitSend();
        },
        [output](int peer) {
          output->recv(peer, kSlot);
          output->waitRecv();
        });
  }

  static constexpr std::uint64_t kSlot = 1U << 20;  // No collective uses this slot.
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace
}  // namespace tutti::compare

int main(int argc, char** argv) {
  return tutti::compare::run_main("gloo_bench", [&] {
    if (argc < 2) throw std::invalid_argument("the first argument is a folder that ranks share");
    tutti::compare::Gloo gloo(argv[1]);
    return tutti::compare::measure(gloo, std::span(argv + 1, argv + argc));
  });
}
