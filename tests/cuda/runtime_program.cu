// A program as nvcc builds it: its kernels are launched through the stand-in for the CUDA runtime.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

__global__ void add(int* values, int amount) {
  values[blockIdx.x * blockDim.x + threadIdx.x] += amount;
}

__global__ void fill_from_shared(int* values) {
  extern __shared__ int shared[];
  shared[blockDim.x - 1 - threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  values[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
}

__global__ void meet(volatile unsigned* arrived) {
  if (threadIdx.x == 0) atomicAdd(const_cast<unsigned*>(arrived), 1);
  __syncthreads();
  while (*arrived < gridDim.x) {
  }
}

#ifndef TRANSLATED
__global__ void absent() {}
#endif

namespace {

constexpr int kBlocks = 4, kThreads = 64, kCount = kBlocks * kThreads;
// More threads wait for each other than a process can give stacks with guard pages.
constexpr int kWaitingBlocks = 33, kWaitingThreads = 1024;

#define EXPECT(condition)                                                   \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
      std::exit(1);                                                         \
    }                                                                       \
  } while (false)
#define SUCCEED(call) EXPECT((call) == cudaSuccess)

void launch_in_both_ways(int* values, cudaStream_t stream) {
  add<<<kBlocks, kThreads, 0, stream>>>(values, 2);
  SUCCEED(cudaGetLastError());
  int amount = 3;
  void* arguments[] = {&values, &amount};
  SUCCEED(cudaLaunchKernel(reinterpret_cast<const void*>(add), kBlocks, kThreads, arguments, 0,
                           stream));
}

void expect_all(const int* values, int expected, cudaStream_t stream) {
  SUCCEED(cudaStreamSynchronize(stream));
  int found[kCount];
  SUCCEED(cudaMemcpy(found, values, sizeof found, cudaMemcpyDefault));
  for (const int each : found) EXPECT(each == expected);
}

void capture(int* values, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  SUCCEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  launch_in_both_ways(values, stream);
  SUCCEED(cudaStreamEndCapture(stream, &graph));
  SUCCEED(cudaGraphInstantiate(&exec, graph, 0));
  SUCCEED(cudaGraphLaunch(exec, stream));
  SUCCEED(cudaGraphLaunch(exec, stream));
  SUCCEED(cudaStreamSynchronize(stream));
  SUCCEED(cudaGraphExecDestroy(exec));
  SUCCEED(cudaGraphDestroy(graph));
}

}  // namespace

int main() {
  int* values = nullptr;
  unsigned* arrived = nullptr;
  cudaStream_t stream = nullptr;
  SUCCEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  SUCCEED(cudaMalloc(reinterpret_cast<void**>(&values), kCount * sizeof(int)));
  SUCCEED(cudaMemset(values, 0, kCount * sizeof(int)));
  launch_in_both_ways(values, stream);
  expect_all(values, 5, stream);
  capture(values, stream);
  expect_all(values, 15, stream);

  fill_from_shared<<<kBlocks, kThreads, kThreads * sizeof(int), stream>>>(values);
  SUCCEED(cudaStreamSynchronize(stream));
  int found[kCount];
  SUCCEED(cudaMemcpy(found, values, sizeof found, cudaMemcpyDefault));
  for (int each = 0; each < kCount; ++each) EXPECT(found[each] == kThreads - 1 - each % kThreads);

  SUCCEED(cudaMalloc(reinterpret_cast<void**>(&arrived), sizeof *arrived));
  SUCCEED(cudaMemset(arrived, 0, sizeof *arrived));
  meet<<<kWaitingBlocks, kWaitingThreads, 0, stream>>>(arrived);
  SUCCEED(cudaStreamSynchronize(stream));
#ifndef TRANSLATED
  absent<<<1, 1, 0, stream>>>();
  EXPECT(cudaGetLastError() == cudaErrorNotSupported);
#endif
  return 0;
}
