// Tests programs of NCCL with buffers on GPUs, on the stand-in for the driver: streams, groups, and
// several GPUs in one thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../../kernels/gpu_buffers.h"
#include "ranks.h"

namespace tutti::test {
namespace {

cudaStream_t handle(const GpuStream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

template <typename T>
std::vector<T> values(const GpuBuffer<T>& buffer) {
  return buffer.read();
}

// One GPU of a thread that drives several, as a program keeps it.
struct Device {
  explicit Device(int ordinal)
      : context(ordinal), input(1000, static_cast<float>(ordinal + 1)), output(1000, 0.0f) {}

  const GpuContext context;
  const GpuStream stream;
  const GpuBuffer<float> input, output;
};

// This is the loop of NCCL's examples for one process with several devices.
TEST(NcclGpus, OneThreadDrivesSeveralGpusWithCommInitAllAndGroups) {
  for (const std::vector<int>& devices : {std::vector<int>{0, 1, 2}, std::vector<int>{3, 1, 2}}) {
    cu("cuInit", 0u);
    std::vector<ncclComm_t> comms(3);
    ASSERT_EQ(ncclCommInitAll(comms.data(), 3, devices.data()), ncclSuccess)
        << ncclGetLastError(nullptr);
    std::vector<std::unique_ptr<Device>> each;
    float sum = 0;
    for (const int device : devices) {
      each.push_back(std::make_unique<Device>(device));
      sum += static_cast<float>(device + 1);
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (std::size_t r = 0; r < 3; ++r)
        ASSERT_EQ(ncclAllReduce(each[r]->input.data(), each[r]->output.data(), 1000, ncclFloat32,
                                ncclSum, comms[r], handle(each[r]->stream)),
                  ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    }
    for (std::size_t r = 0; r < 3; ++r) {
      each[r]->stream.synchronize();
      EXPECT_EQ(values(each[r]->output), std::vector<float>(1000, sum));
      int device = -1;
      EXPECT_EQ(ncclCommCuDevice(comms[r], &device), ncclSuccess);
      EXPECT_EQ(device, devices[r]);
    }
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
}

TEST(NcclGpus, InitAllRefusesAGpuThatThereIsNot) {
  cu("cuInit", 0u);
  std::vector<ncclComm_t> comms(2);
  const int devices[] = {0, 99};
  EXPECT_EQ(ncclCommInitAll(comms.data(), 2, devices), ncclInvalidArgument);
  EXPECT_EQ(comms[0], nullptr);
}

TEST(NcclGpus, InitAllRefusesAGpuThatIsNamedTwice) {
  cu("cuInit", 0u);
  std::vector<ncclComm_t> comms(2);
  const int devices[] = {1, 1};
  EXPECT_EQ(ncclCommInitAll(comms.data(), 2, devices), ncclInvalidUsage);
  EXPECT_EQ(comms[0], nullptr);
}

TEST(NcclGpus, MemoryIsAllocatedAndFreedWithoutACurrentContext) {
  cu("cuInit", 0u);
  void *memory = nullptr, *other = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess) << ncclGetLastError(nullptr);
  ASSERT_EQ(ncclMemAlloc(&other, 4096), ncclSuccess);
  EXPECT_NE(memory, other);
  EXPECT_EQ(ncclMemFree(static_cast<char*>(memory) + 1), ncclInvalidArgument);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  std::thread([&] {
    EXPECT_EQ(ncclMemFree(other), ncclSuccess) << ncclGetLastError(nullptr);
  }).join();
}

// Ranks are threads with a GPU each: the current one of the thread that calls ncclCommInitRank.
void on_gpus(int size, const Body& body) {
  in_threads(size, body, [](int rank, const auto& run) {
    const GpuContext context(rank);
    run();
  });
}

TEST(NcclGpus, CallsReturnAtOnceAndRunInTheOrderOfTheirStreams) {
  on_gpus(2, [](ncclComm_t comm, int rank, int) {
    const GpuStream stream;
    const GpuBuffer<int> data(1000, 0), copy(1000, 0);
    const PinnedBuffer<int> own(1000, rank + 1);
    std::atomic<bool> open{false};
    stream.run([&] {
      while (!open) std::this_thread::yield();
    });
    stream.copy(data.data(), own.view().data(), 1000 * sizeof(int));
    CHECK_NCCL(
        ncclAllReduce(data.data(), data.data(), 1000, ncclInt32, ncclSum, comm, handle(stream)));
    CHECK_NCCL(ncclBroadcast(data.data(), copy.data(), 1000, ncclInt32, 1, comm, handle(stream)));
    expect_equal(values(data), std::vector<int>(1000, 0),
                 "what is there before the stream goes on");
    open = true;
    stream.synchronize();
    expect_equal(values(data), std::vector<int>(1000, 3), "the sum");
    expect_equal(values(copy), std::vector<int>(1000, 3), "what was broadcast out of place");
    ncclResult_t error = ncclInternalError;
    CHECK_NCCL(ncclCommGetAsyncError(comm, &error));
    expect_equal(error, ncclSuccess, "the asynchronous error");
  });
}

TEST(NcclGpus, MessagesOfAGroupCrossEachOther) {
  on_gpus(3, [](ncclComm_t comm, int rank, int size) {
    const GpuStream stream;
    const GpuBuffer<int> sent(300, rank), got(300, -1);
    CHECK_NCCL(ncclGroupStart());
    for (int peer = 0; peer < size; ++peer) {
      CHECK_NCCL(ncclSend(sent.data() + 100 * peer, 100, ncclInt32, peer, comm, handle(stream)));
      CHECK_NCCL(ncclRecv(got.data() + 100 * peer, 100, ncclInt32, peer, comm, handle(stream)));
    }
    CHECK_NCCL(ncclGroupEnd());
    stream.synchronize();
    const std::vector<int> found = values(got);
    for (int i = 0; i < 300; ++i)
      expect_equal(found[static_cast<std::size_t>(i)], i / 100, "a number");
  });
}

TEST(NcclGpus, AScalarOnTheGpuIsReadWhenTheStreamComesToTheCall) {
  on_gpus(2, [](ncclComm_t comm, int rank, int) {
    const GpuStream stream;
    const GpuBuffer<float> data(10, 2.0f), scalar(1, 0.0f);
    ncclRedOp_t op{};
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&op, scalar.data(), ncclFloat32, ncclScalarDevice, comm));
    const PinnedBuffer<float> own(1, static_cast<float>(rank + 1));
    stream.run([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // The call comes before it.
    });
    stream.copy(scalar.data(), own.view().data(), sizeof(float));
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), 10, ncclFloat32, op, comm, handle(stream)));
    CHECK_NCCL(ncclRedOpDestroy(op, comm));
    stream.synchronize();
    expect_equal(values(data), std::vector<float>(10, 6.0f), "the sum");
  });
}

TEST(NcclGpus, CallsThatAStreamCapturesAreMadeAtEachLaunchOfTheGraph) {
  on_gpus(2, [](ncclComm_t comm, int rank, int size) {
    const GpuStream stream;
    const GpuBuffer<int> data(1000), copy(1000), sent(1000, rank), got(1000);
    const PinnedBuffer<int> own(1000);
    const GpuGraph graph(stream, [&] {
      stream.copy(data.data(), own.view().data(), 1000 * sizeof(int));
      CHECK_NCCL(
          ncclAllReduce(data.data(), data.data(), 1000, ncclInt32, ncclSum, comm, handle(stream)));
      CHECK_NCCL(ncclBroadcast(data.data(), copy.data(), 1000, ncclInt32, 1, comm, handle(stream)));
      CHECK_NCCL(ncclGroupStart());
      CHECK_NCCL(ncclSend(copy.data(), 1000, ncclInt32, (rank + 1) % size, comm, handle(stream)));
      CHECK_NCCL(ncclRecv(got.data(), 1000, ncclInt32, (rank + 1) % size, comm, handle(stream)));
      CHECK_NCCL(ncclGroupEnd());
    });
    for (int launch = 0; launch < 100; ++launch) {
      std::ranges::fill(own.view(), launch + rank);
      graph.launch(stream);
      stream.synchronize();
      expect_equal(values(got), std::vector<int>(1000, 2 * launch + 1), "the sum of a launch");
    }
    ncclResult_t error = ncclInternalError;
    CHECK_NCCL(ncclCommGetAsyncError(comm, &error));
    expect_equal(error, ncclSuccess, "the asynchronous error");
  });
}

TEST(NcclGpus, AScalarOnTheGpuIsNotCaptured) {
  on_gpus(1, [](ncclComm_t comm, int, int) {
    const GpuStream stream;
    const GpuBuffer<float> data(10, 2.0f), scalar(1, 3.0f);
    ncclRedOp_t op{};
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&op, scalar.data(), ncclFloat32, ncclScalarDevice, comm));
    const GpuGraph graph(stream, [&] {
      expect_equal(
          ncclAllReduce(data.data(), data.data(), 10, ncclFloat32, op, comm, handle(stream)),
          ncclInvalidUsage, "what a captured call returns");
    });
    CHECK_NCCL(ncclRedOpDestroy(op, comm));
  });
}

// One capture holds streams of several devices.
TEST(NcclGpus, OneCaptureHoldsAGroupOverSeveralGpus) {
  cu("cuInit", 0u);
  std::vector<ncclComm_t> comms(3);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 3, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::unique_ptr<Device>> each;
  for (int device = 0; device < 3; ++device) each.push_back(std::make_unique<Device>(device));
  {
    const GpuGraph graph(each[0]->stream, [&] {
      for (int r = 1; r < 3; ++r) follow(each[r]->stream, each[0]->stream);
      for (int repeat = 0; repeat < 2; ++repeat) {
        ASSERT_EQ(ncclGroupStart(), ncclSuccess);
        for (std::size_t r = 0; r < 3; ++r)
          ASSERT_EQ(ncclAllReduce(repeat == 0 ? each[r]->input.data() : each[r]->output.data(),
                                  each[r]->output.data(), 1000, ncclFloat32, ncclSum, comms[r],
                                  handle(each[r]->stream)),
                    ncclSuccess);
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
      }
      for (int r = 1; r < 3; ++r) follow(each[0]->stream, each[r]->stream);
    });
    for (int launch = 0; launch < 5; ++launch) graph.launch(each[0]->stream);
    each[0]->stream.synchronize();
    for (std::size_t r = 0; r < 3; ++r)
      EXPECT_EQ(values(each[r]->output), std::vector<float>(1000, 18));
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    // A launch after the end of the communicators goes on without them.
    graph.launch(each[0]->stream);
    each[0]->stream.synchronize();
  }
}

TEST(NcclGpus, HostBuffersWithoutAStreamAreDoneWhenTheCallReturns) {
  on_gpus(2, [](ncclComm_t comm, int, int) {
    int value = 2, result = 0;
    CHECK_NCCL(ncclAllReduce(&value, &result, 1, ncclInt32, ncclProd, comm, nullptr));
    expect_equal(result, 4, "the product");
  });
}

TEST(NcclGpus, PinnedMemoryWithoutAStreamIsInTheOrderOfTheDefaultStream) {
  on_gpus(2, [](ncclComm_t comm, int rank, int) {
    if (rank == 1) {  // Ranks that are threads have no default stream each.
      const PinnedBuffer<int> data(1000, 2);
      const GpuStream stream;
      CHECK_NCCL(ncclAllReduce(data.view().data(), data.view().data(), 1000, ncclInt32, ncclSum,
                               comm, handle(stream)));
      return stream.synchronize();
    }
    const PinnedBuffer<int> data(1000, 0), own(1000, 1);
    static std::atomic<bool> open;
    open = false;
    const auto wait = [](void*) {
      while (!open) std::this_thread::yield();
    };
    cu("cuLaunchHostFunc", static_cast<void*>(nullptr), static_cast<void (*)(void*)>(wait),
       static_cast<void*>(nullptr));
    cu("cuMemcpyAsync", address_of(data.view().data()), address_of(own.view().data()),
       std::size_t{4000}, static_cast<void*>(nullptr));
    CHECK_NCCL(ncclAllReduce(data.view().data(), data.view().data(), 1000, ncclInt32, ncclSum, comm,
                             nullptr));
    open = true;
    cu("cuStreamSynchronize", static_cast<void*>(nullptr));
    expect_equal(data.view()[0], 3, "the sum");
  });
}

TEST(NcclGpus, MemoryForNcclIsOnTheGpu) {
  on_gpus(1, [](ncclComm_t comm, int, int) {
    void* memory = nullptr;
    CHECK_NCCL(ncclMemAlloc(&memory, 4000));
    const GpuStream stream;
    CHECK_NCCL(ncclAllReduce(memory, memory, 1000, ncclFloat32, ncclSum, comm, handle(stream)));
    stream.synchronize();
    CHECK_NCCL(ncclMemFree(memory));
    expect_equal(ncclMemFree(memory), ncclInvalidArgument, "freeing it again");
  });
}

TEST(NcclGpus, AbortEndsCallsWhoseOtherRankNeverComes) {
  on_gpus(2, [](ncclComm_t comm, int rank, int) {
    const GpuStream stream;
    const GpuBuffer<float> data(1000, 1.0f);
    CHECK_NCCL(
        ncclAllReduce(data.data(), data.data(), 1000, ncclFloat32, ncclSum, comm, handle(stream)));
    stream.synchronize();
    if (rank == 0) {
      CHECK_NCCL(ncclAllReduce(data.data(), data.data(), 1000, ncclFloat32, ncclSum, comm,
                               handle(stream)));
      CHECK_NCCL(ncclCommRevoke(comm, 0));
    }
    stream.synchronize();
  });
}

TEST(NcclGpus, AThreadWithoutAContextMayMakeAllCalls) {
  for (const char* device : {"0", "none"}) {
    setenv("TUTTI_DEVICE", device, 1);
    on_gpus(1, [](ncclComm_t comm, int, int) {
      const GpuStream stream;
      const GpuBuffer<int> from(10, 7), to(10, 0), gathered(10, 0);
      std::thread([&] {
        EXPECT_EQ(ncclAllGather(from.data(), gathered.data(), 10, ncclInt32, comm, handle(stream)),
                  ncclSuccess);
        ncclGroupStart();
        EXPECT_EQ(ncclSend(from.data(), 10, ncclInt32, 0, comm, handle(stream)), ncclSuccess);
        EXPECT_EQ(ncclRecv(to.data(), 10, ncclInt32, 0, comm, handle(stream)), ncclSuccess);
        EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
        EXPECT_EQ(ncclBroadcast(from.data(), to.data(), 0, ncclInt32, 0, comm, nullptr),
                  ncclSuccess);
      }).join();
      stream.synchronize();
      expect_equal(values(gathered), std::vector<int>(10, 7), "what was gathered");
      expect_equal(values(to), std::vector<int>(10, 7), "the message");
    });
    unsetenv("TUTTI_DEVICE");
  }
}

TEST(NcclGpus, PartsOfACommunicatorKeepItsGpu) {
  on_gpus(4, [](ncclComm_t comm, int rank, int) {
    ncclComm_t half = nullptr;
    CHECK_NCCL(ncclCommSplit(comm, rank / 2, 0, &half, nullptr));
    const GpuStream stream;
    const GpuBuffer<int> data(10, rank);
    CHECK_NCCL(
        ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, half, handle(stream)));
    stream.synchronize();
    expect_equal(values(data), std::vector<int>(10, rank < 2 ? 1 : 5), "the sum of a half");
    CHECK_NCCL(ncclCommDestroy(half));
  });
}

}  // namespace
}  // namespace tutti::test
