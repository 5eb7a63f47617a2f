// Launches one kernel of threads.cu by name, for two ranks where it is an exchange. It is built
// with ThreadSanitizer, and so are its kernels; races_test.cpp reads what it says.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "the driver fails: %d\n", static_cast<int>(result));
  std::exit(2);
}

CUdeviceptr zeros(std::size_t bytes) {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, bytes));
  check(cuMemsetD8(address, 0, bytes));
  return address;
}

void exchange(CUfunction kernel) {
  std::uint32_t words = 100, rounds = 5;
  CUdeviceptr memory[2], flags[2], sums[2];
  CUstream streams[2];
  for (int rank = 0; rank < 2; ++rank) {
    memory[rank] = zeros(2 * words * 8);
    flags[rank] = zeros(32);
    sums[rank] = zeros(8);
    check(cuStreamCreate(&streams[rank], CU_STREAM_NON_BLOCKING));
  }
  for (int rank = 0; rank < 2; ++rank) {
    void* arguments[] = {&memory[rank], &memory[1 - rank], &flags[rank], &flags[1 - rank],
                         &words,        &rounds,           &sums[rank]};
    check(cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, streams[rank], arguments, nullptr));
  }
}

void sum(CUfunction kernel) {
  std::uint32_t count = 1000;
  CUdeviceptr values = zeros(count * 4), result = zeros(4);
  void* arguments[] = {&values, &count, &result};
  check(cuLaunchKernel(kernel, 1, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
}

}  // namespace

int main(int, char** arguments) {
  check(cuInit(0));
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, 0));
  check(cuCtxSetCurrent(context));
  CUmodule module = nullptr;
  check(cuModuleLoadData(&module, "// PTX"));
  CUfunction kernel = nullptr;
  const std::string name = arguments[1];
  check(cuModuleGetFunction(&kernel, module, name.c_str()));
  if (name.rfind("exchange", 0) == 0)
    exchange(kernel);
  else
    sum(kernel);
  check(cuCtxSynchronize());
  std::puts("ended");
}
