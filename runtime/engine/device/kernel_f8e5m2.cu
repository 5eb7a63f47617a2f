#include "runtime/engine/device/walk.cuh"

extern "C" __global__ void __launch_bounds__(tutti::device::kMostThreads, 1)
    tutti_run_f8e5m2(const __grid_constant__ tutti::device::CallRecord call) {
  tutti::device::walk<tutti::device::Float8E5M2>(call);
}
