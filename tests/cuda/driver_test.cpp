// The driver: order on streams, waiting for values and events, memory, and refusals.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "tests/cuda/launch.h"

namespace tutti::stand_in::test {
namespace {

TEST(Streams, WorkOfOneRunsInOrder) {
  const Gpu gpu;
  const Stream stream;
  const Array<Wide> values(1000, 1);
  Wide expected = 1;
  for (Wide by = 2; by < 40; ++by) {
    gpu.launch("multiply_all", {1, 64, 0, stream.handle()}, values.address(), Wide{1000}, by);
    expected *= by;
  }
  stream.synchronize();
  EXPECT_EQ(values.get(), std::vector<Wide>(1000, expected));
}

TEST(Streams, OneWaitsForAValueWhileAnotherWorks) {
  const Gpu gpu;
  const Stream waiting, working;
  const Pinned flag, done;
  check(cuStreamWaitValue64(waiting.handle(), flag.address(), 3, CU_STREAM_WAIT_VALUE_GEQ));
  check(cuStreamWriteValue64(waiting.handle(), done.address(), 7, 0));
  check(cuStreamWriteValue64(working.handle(), flag.address(), 2, 0));
  working.synchronize();
  EXPECT_EQ(cuStreamQuery(waiting.handle()), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(done.word(), 0U);
  check(cuStreamWriteValue32(working.handle(), flag.address(), 3, 0));
  waiting.synchronize();
  EXPECT_EQ(done.word(), 7U);
  EXPECT_EQ(cuStreamQuery(waiting.handle()), CUDA_SUCCESS);
}

TEST(Streams, AllConditionsOfAValue) {
  const Gpu gpu;
  const Stream stream;
  const Pinned flag;
  struct Condition {
    unsigned flags;
    Wide not_yet, then;
  };
  for (const Condition each :
       {Condition{CU_STREAM_WAIT_VALUE_GEQ, 4, 6}, Condition{CU_STREAM_WAIT_VALUE_EQ, 6, 5},
        Condition{CU_STREAM_WAIT_VALUE_AND, 10, 4},
        Condition{CU_STREAM_WAIT_VALUE_NOR, 0xfffffffa, 0xfffffff0}}) {
    flag.word() = each.not_yet;
    check(cuStreamWaitValue32(stream.handle(), flag.address(), 5, each.flags));
    for (int look = 0; look < 100; ++look) {
      EXPECT_EQ(cuStreamQuery(stream.handle()), CUDA_ERROR_NOT_READY) << each.flags;
      std::this_thread::yield();
    }
    flag.word() = each.then;
    stream.synchronize();
  }
}

TEST(Streams, OneWaitsForAnEventOfAnother) {
  const Gpu gpu;
  const Stream first, second;
  const Pinned go, order;
  CUevent event = nullptr;
  check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  check(cuStreamWaitValue32(first.handle(), go.address(), 1, 0));
  check(cuLaunchHostFunc(
      first.handle(), [](void* word) { *static_cast<std::atomic<Wide>*>(word) += 1; },
      &order.word()));
  check(cuEventRecord(event, first.handle()));
  check(cuStreamWaitEvent(second.handle(), event, 0));
  check(cuLaunchHostFunc(
      second.handle(),
      [](void* word) {
        *static_cast<std::atomic<Wide>*>(word) = static_cast<std::atomic<Wide>*>(word)->load() * 10;
      },
      &order.word()));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  go.word() = 1;
  second.synchronize();
  EXPECT_EQ(order.word(), 10U);
  check(cuEventSynchronize(event));
  check(cuEventDestroy(event));
}

// The default stream waits for all streams that do not say otherwise, and these wait for it.
TEST(Streams, DefaultStreamComesBetweenTheOthers) {
  const Gpu gpu;
  const Stream blocking(CU_STREAM_DEFAULT), free(CU_STREAM_NON_BLOCKING);
  const Pinned go, word;
  check(cuStreamWaitValue32(blocking.handle(), go.address(), 1, 0));
  check(cuStreamWriteValue64(nullptr, word.address(), 1, 0));
  check(cuStreamWriteValue64(free.handle(), word.address(), 5, 0));
  free.synchronize();
  EXPECT_EQ(word.word(), 5U);
  EXPECT_EQ(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
  check(cuStreamWriteValue64(blocking.handle(), word.address(), 2, 0));
  check(cuStreamWriteValue64(CU_STREAM_PER_THREAD, word.address(), 3, 0));
  EXPECT_EQ(word.word(), 5U);
  go.word() = 1;
  check(cuStreamSynchronize(nullptr));
  EXPECT_GE(word.word(), 2U);
}

TEST(Streams, HostFunctionMayNotCallTheDriver) {
  const Gpu gpu;
  const Stream stream;
  static std::atomic<int> result;
  check(cuLaunchHostFunc(
      stream.handle(),
      [](void* handle) { result = cuStreamSynchronize(static_cast<CUstream>(handle)); },
      stream.handle()));
  stream.synchronize();
  EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
}

TEST(Streams, CopyFromPageableMemoryReadsItAtOnce) {
  const Gpu gpu;
  const Stream stream;
  const Pinned go;
  const Array<Wide> to(4, 0);
  check(cuStreamWaitValue32(stream.handle(), go.address(), 1, 0));
  std::vector<Wide> from = {1, 2, 3, 4};
  check(cuMemcpyHtoDAsync(to.address(), from.data(), 32, stream.handle()));
  from.assign(4, 9);
  go.word() = 1;
  stream.synchronize();
  EXPECT_EQ(to.get(), (std::vector<Wide>{1, 2, 3, 4}));
}

TEST(Memory, IsKnownByItsAddress) {
  const Gpu gpu;
  const Array<Wide> device(10);
  unsigned type = 0;
  CUcontext context = nullptr;
  int ordinal = -1;
  const CUdeviceptr inside = device.address(3) + 1;
  check(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  check(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  check(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(context, gpu.context());
  EXPECT_EQ(ordinal, 0);
  int mine = 0;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<CUdeviceptr>(&mine)),
            CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr managed = 0;
  check(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
  unsigned is_managed = 0;
  check(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
  EXPECT_EQ(is_managed, 1U);
  check(cuMemFree(managed));
  EXPECT_EQ(cuMemFree(managed), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(inside), CUDA_ERROR_INVALID_VALUE);
}

TEST(Memory, OfTheHostIsRegisteredOnce) {
  const Gpu gpu;
  std::vector<Wide> memory(1000, 2);
  check(cuMemHostRegister(memory.data(), 8000, CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_EQ(cuMemHostRegister(&memory[5], 8, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr address = 0;
  check(cuMemHostGetDevicePointer(&address, memory.data(), 0));
  gpu.launch("multiply_all", {1, 32}, address, Wide{1000}, Wide{3});
  check(cuCtxSynchronize());
  EXPECT_EQ(memory, std::vector<Wide>(1000, 6));
  unsigned type = 0;
  check(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  check(cuMemHostUnregister(memory.data()));
  EXPECT_EQ(cuMemHostUnregister(memory.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST(Memory, CopiesBeyondItsEndAreRefused) {
  const Gpu gpu;
  const Array<Wide> device(4, 1);
  Wide values[8] = {};
  EXPECT_EQ(cuMemcpyHtoD(device.address(), values, 40), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(values, device.address(1), 32), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(device.address(3), 0, 9), CUDA_ERROR_INVALID_VALUE);
  check(cuMemsetD8(device.address(1), 0, 8));
  EXPECT_EQ(device.get(), (std::vector<Wide>{1, 0, 1, 1}));
}

TEST(Driver, IsFoundByItsSonameAndItsFunctionsByName) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  using Find = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto find = reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"));
  ASSERT_NE(find, nullptr);
  for (const char* const name :
       {"cuInit", "cuMemAlloc", "cuMemFree", "cuCtxPushCurrent", "cuStreamDestroy",
        "cuStreamGetCtx", "cuMemHostRegister", "cuDevicePrimaryCtxRelease", "cuDeviceGetUuid",
        "cuStreamWaitValue32", "cuLaunchKernel", "cuPointerGetAttributes", "cuGetProcAddress",
        "cuEventDestroy", "cuIpcOpenMemHandle", "cuMemHostGetDevicePointer"}) {
    void* function = nullptr;
    EXPECT_EQ(find(name, &function, 12000, 0, nullptr), CUDA_SUCCESS) << name;
    EXPECT_NE(function, nullptr) << name;
  }
  void* function = nullptr;
  EXPECT_EQ(find("cuNoSuchFunction", &function, 12000, 0, nullptr), CUDA_ERROR_NOT_FOUND);
}

TEST(Driver, RefusesWithoutAContextAndWithoutAnImage) {
  check(cuInit(0));
  std::thread([] {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 8), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  const Gpu gpu;
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, "no image at all"), CUDA_ERROR_INVALID_IMAGE);
  check(cuModuleLoadData(&module, "// PTX"));
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
  check(cuModuleUnload(module));
}

TEST(Driver, RefusesGridsThatNoGpuTakes) {
  const Gpu gpu;
  const CUfunction kernel = gpu.kernel("leave_others_at_barrier");
  const auto launch = [&](unsigned blocks, unsigned threads, unsigned shared) {
    return cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, shared, nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(launch(0, 32, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1025, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 32, 50000), CUDA_ERROR_INVALID_VALUE);
  int threads = 0;
  check(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel));
  EXPECT_EQ(threads, 1024);
}

/// Runs `rank` of two processes that exchange words by rings in memory of the GPU's that both map.
/// Returns whether all arrived.
bool exchange_between_processes(int rank, const int* pipe_in, const int* pipe_out) {
  constexpr unsigned kWords = 64, kRounds = 50;
  const Gpu gpu;
  const Array<Wide> memory(kWords, 0), flags(2, 0), sum(1, 0);
  CUipcMemHandle mine[2], others[2];
  check(cuIpcGetMemHandle(&mine[0], memory.address()));
  check(cuIpcGetMemHandle(&mine[1], flags.address()));
  if (write(pipe_out[1], mine, sizeof mine) != sizeof mine ||
      read(pipe_in[0], others, sizeof others) != sizeof others)
    return false;
  CUdeviceptr peer = 0, peer_flags = 0;
  check(cuIpcOpenMemHandle(&peer, others[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  check(cuIpcOpenMemHandle(&peer_flags, others[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  gpu.launch("exchange_words", {1, 64}, memory.address(), peer, flags.address(), peer_flags, kWords,
             kRounds, sum.address());
  check(cuCtxSynchronize());
  char byte = static_cast<char>(rank);  // The peer has mapped this memory as long as it runs.
  if (write(pipe_out[1], &byte, 1) != 1 || read(pipe_in[0], &byte, 1) != 1) return false;
  check(cuIpcCloseMemHandle(peer));
  check(cuIpcCloseMemHandle(peer_flags));
  const Wide expected = Wide{kRounds} * (kRounds + 1) / 2 * 1000 * kWords +
                        Wide{kRounds} * (kWords * (kWords - 1) / 2);
  return sum.get()[0] == expected && !testing::Test::HasFailure();
}

TEST(Processes, ExchangeWordsByMemoryThatBothMap) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  // In a fresh process, which may fork since it has not used the driver yet.
  const auto run = [&] {
    int up[2];
    int down[2];
    if (pipe(up) != 0 || pipe(down) != 0) std::_Exit(1);
    const pid_t child = fork();
    if (child == 0) std::_Exit(exchange_between_processes(1, up, down) ? 0 : 1);
    const bool good = exchange_between_processes(0, down, up);
    int status = 1;
    waitpid(child, &status, 0);
    std::_Exit(good && status == 0 ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST(Processes, ShareTheRoomOfADevice) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [&] {
    char name[] = "/tmp/stand-in-XXXXXX";
    const int file = mkstemp(name);
    setenv("FAKE_CUDA_SMS", "2", 1);
    setenv("FAKE_CUDA_SMS_FILE", name, 1);
    auto* const counts = static_cast<std::uint32_t*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const pid_t child = fork();
    {
      const Gpu gpu;
      check(cuMemHostRegister(counts, 4096, 0));
      gpu.launch("count_residents", {10, 32}, counts, counts + 1, counts + 2);
      check(cuCtxSynchronize());
    }
    if (child == 0) std::_Exit(testing::Test::HasFailure() ? 1 : 0);
    int status = 1;
    waitpid(child, &status, 0);
    close(file);
    unlink(name);
    std::_Exit(status == 0 && counts[2] == 20 && counts[1] <= 2 && counts[0] == 0 ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tutti::stand_in::test
