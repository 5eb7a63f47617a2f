// Tests gradients and parameters in the memory of GPUs, on the stand-in for the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <tutti/ddp.hpp>

#include "tests/kernels/gpu_buffers.h"
#include "tests/runtime/threads.h"

namespace tutti::ddp {
namespace {

using test::GpuBuffer;
using test::GpuContext;
using test::GpuStream;
using test::PinnedBuffer;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kFirst = 1000, kSecond = 37;
constexpr int kRanks = 2;

/// Holds a rank's model on its GPU.
struct Model {
  explicit Model(int rank)
      : first(kFirst, static_cast<float>(1 + rank)),
        second(kSecond, static_cast<float>(5 + rank)) {}

  std::vector<Parameter> parameters() const {
    return {{"first", first.data(), kFirst, DataType::f32},
            {"second", second.data(), kSecond, DataType::f32}};
  }

  const GpuBuffer<float> first, second;
};

/// Allocates memory of a GPU for the gradients of a model, in buckets of one gradient each.
struct Gradients {
  explicit Gradients(const Model& model, void* stream)
      : memory(gradient_bytes(plan_buckets(model.parameters(), buckets)) + 64) {
    const std::size_t skipped = (64 - test::address_of(memory.data()) % 64) % 64;
    options.buckets = buckets;
    options.gpu = {memory.data() + skipped, memory.size() - 64, stream};
  }

  const BucketOptions buckets{64, 64};
  const GpuBuffer<std::byte> memory;
  Options options;
};

class OnGpus : public testing::TestWithParam<const char*> {
 protected:
  static void on_ranks(const std::function<void(Communicator&, const GpuStream&)>& body) {
    Config config = test::quick_config("shm");
    config.device = GetParam();
    test::cu("cuInit", 0u);  // The program loads the driver before it makes a communicator.
    EXPECT_THAT(test::run_ranks(kRanks, config,
                                [&](Communicator& comm) {
                                  const GpuContext context(comm.rank());
                                  const GpuStream stream;
                                  body(comm, stream);
                                }),
                Each(IsEmpty()));
  }
};

INSTANTIATE_TEST_SUITE_P(MovedBy, OnGpus, testing::Values("rank", "none"), [](const auto& each) {
  return std::string(each.param == std::string("rank") ? "Kernels" : "TheHost");
});

TEST_P(OnGpus, GradientsAreAveragedWhenTheStreamComesToThem) {
  on_ranks([](Communicator& comm, const GpuStream& stream) {
    const Model model(comm.rank());
    Gradients gradients(model, stream.handle());
    DataParallel ddp(comm, model.parameters(), gradients.options);
    for (int step = 1; step <= 3; ++step) {
      const auto own = static_cast<float>(10 * step + comm.rank());
      const PinnedBuffer<float> backward(kFirst, own);
      std::vector<std::unique_ptr<PinnedBuffer<float>>> averages;
      for (const std::size_t i : {1u, 0u}) {
        const std::span<float> gradient = ddp.gradient<float>(i);
        if (comm.rank() == 0)
          stream.run([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
        stream.copy(gradient.data(), backward.view().data(), gradient.size_bytes());
        ddp.ready(i);
      }
      ddp.finish();
      for (const std::size_t i : {0u, 1u}) {
        const std::span<float> gradient = ddp.gradient<float>(i);
        averages.push_back(std::make_unique<PinnedBuffer<float>>(gradient.size()));
        stream.copy(averages.back()->view().data(), gradient.data(), gradient.size_bytes());
      }
      stream.synchronize();
      for (const auto& average : averages)
        EXPECT_THAT(average->view(), Each(static_cast<float>(10 * step) + 0.5f)) << step;
    }
  });
}

TEST_P(OnGpus, ParametersAreBroadcastAndCompared) {
  on_ranks([](Communicator& comm, const GpuStream& stream) {
    const Model model(comm.rank());
    Gradients gradients(model, stream.handle());
    DataParallel ddp(comm, model.parameters(), gradients.options);
    try {
      ddp.check_parameters();
      ADD_FAILURE() << "the parameters differ";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::mismatch);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("'first'"), HasSubstr("of 2 that differ")));
    }
    ddp.broadcast_parameters(1);
    EXPECT_THAT(model.first.read(), Each(2.0f));
    EXPECT_THAT(model.second.read(), Each(6.0f));
    ddp.check_parameters();
    if (comm.rank() == 0) model.second.fill(7);
    EXPECT_THROW(ddp.check_parameters(), Error);
  });
}

TEST_P(OnGpus, TooLittleMemoryForGradientsIsRefused) {
  on_ranks([](Communicator& comm, const GpuStream& stream) {
    const Model model(comm.rank());
    const auto refused = [&](const GpuGradients& gpu) {
      Gradients gradients(model, stream.handle());
      gradients.options.gpu = gpu;
      try {
        const DataParallel ddp(comm, model.parameters(), gradients.options);
        ADD_FAILURE() << "it was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        EXPECT_THAT(error.what(), HasSubstr("for gradients of 4224 B"));
      }
    };
    Gradients right(model, stream.handle());
    GpuGradients gpu = *right.options.gpu;
    refused({gpu.memory, 4223, gpu.stream});
    refused({static_cast<std::byte*>(gpu.memory) + 4, gpu.bytes, gpu.stream});
    refused({nullptr, gpu.bytes, gpu.stream});
  });
}

}  // namespace
}  // namespace tutti::ddp
