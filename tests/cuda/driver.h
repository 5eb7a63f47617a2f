// The driver's functions are spread over several files; this is what they share.
#pragma once

// The library exports what the driver's header declares.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/cuda/memory.h"
#include "tests/cuda/stream.h"

namespace tutti::stand_in {

struct Driver {
  Driver();
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> contexts;  ///< By the ordinal of the device.
  unsigned long long context_numbers = 0;          ///< How many there have been.
  Memory memory;
  std::deque<Event> events;  ///< They stay: a stream may still record one that is destroyed.
  bool initialized = false;
};
Driver& driver();

/// The contexts that this thread has pushed.
std::vector<Context*>& context_stack();

inline CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }
inline Context* context_of(CUcontext handle) { return reinterpret_cast<Context*>(handle); }
template <typename T>
T* at(CUdeviceptr address) {
  return reinterpret_cast<T*>(address);
}

/// The context of this thread, or null: then `*refusal` is what a function returns.
Context* current(CUresult* refusal);
/// The stream of a handle, or null: then `*refusal` is what a function returns.
std::shared_ptr<Stream> find_stream(CUstream handle, CUresult* refusal);
/// Submits work to a stream, or adds it to the graph of one that is captured.
CUresult submit(CUstream handle, CUgraphNodeType type, std::function<void()> work);

}  // namespace tutti::stand_in
