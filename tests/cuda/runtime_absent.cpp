// Stands in for the functions of the CUDA runtime that PyTorch 2.14 links, and that its tests on
// the stand-in do not need. A call of one is an error, and is written to standard error.
#include <cstdio>

#define ABSENT(name)                                                                       \
  extern "C" __attribute__((visibility("default"))) int name() {                           \
    std::fprintf(stderr, "the stand-in for the CUDA runtime has no function " #name "\n"); \
    return 801; /* cudaErrorNotSupported */                                                \
  }

ABSENT(cudaDeviceGetDefaultMemPool)
ABSENT(cudaDeviceGetGraphMemAttribute)
ABSENT(cudaDeviceSetGraphMemAttribute)
ABSENT(cudaFreeAsync)
ABSENT(cudaFuncGetAttributes)
ABSENT(cudaFuncSetAttribute)
ABSENT(cudaGetSymbolAddress)
ABSENT(cudaGraphAddNode)
ABSENT(cudaGraphConditionalHandleCreate)
ABSENT(cudaGraphNodeGetDependencies)
ABSENT(cudaIpcCloseMemHandle)
ABSENT(cudaIpcGetEventHandle)
ABSENT(cudaIpcGetMemHandle)
ABSENT(cudaIpcOpenEventHandle)
ABSENT(cudaIpcOpenMemHandle)
ABSENT(cudaKernelSetAttributeForDevice)
ABSENT(cudaLaunchCooperativeKernel)
ABSENT(cudaLaunchKernelExC)
ABSENT(cudaLibraryGetKernel)
ABSENT(cudaLibraryLoadData)
ABSENT(cudaLibraryUnload)
ABSENT(cudaMallocAsync)
ABSENT(cudaMemPoolGetAttribute)
ABSENT(cudaMemPoolSetAccess)
ABSENT(cudaMemPoolSetAttribute)
ABSENT(cudaMemPoolTrimTo)
ABSENT(cudaMemcpy2DAsync)
ABSENT(cudaMemcpyToSymbol)
ABSENT(cudaOccupancyMaxActiveBlocksPerMultiprocessor)
ABSENT(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
ABSENT(cudaProfilerStart)
ABSENT(cudaProfilerStop)
ABSENT(cudaStreamAddCallback)
ABSENT(cudaStreamBeginCaptureToGraph)
