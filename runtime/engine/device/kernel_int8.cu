#include "runtime/engine/device/walk.cuh"

extern "C" __global__ void __launch_bounds__(tutti::device::kMostThreads, 1)
    tutti_run_int8(const __grid_constant__ tutti::device::CallRecord call) {
  tutti::device::walk<tutti::device::Integer<std::int8_t>>(call);
}
