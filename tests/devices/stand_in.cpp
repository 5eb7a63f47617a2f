// Stands in for the CUDA driver (libcuda.so.1) where there is no GPU: memory that the host cannot
// touch, streams that are threads, and the functions that the library calls. It shows the order in
// which things happen on a stream; it shows nothing of a GPU's speed or of its limits.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Address = std::uint64_t;
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidContext = 201, kNotFound = 500;

struct Allocation {
  std::size_t bytes;
  std::byte* alias;  // It is the same memory, which the stand-in itself may touch.
  bool of_device;
};

struct Stream {
  Stream() : thread([this] { run(); }) {}
  ~Stream() {
    push([this] { stop = true; });
    thread.join();
  }
  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.empty(); });
  }
  void run() {
    std::unique_lock lock(mutex);
    while (!stop) {
      changed.wait(lock, [&] { return !queue.empty(); });
      const std::function<void()> work = queue.front();
      lock.unlock();
      work();
      lock.lock();
      queue.pop_front();
      changed.notify_all();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool stop = false;
  std::atomic<bool> capturing{false};
  std::thread thread;
};

struct World {
  std::mutex mutex;
  std::map<Address, Allocation> memory;
  std::map<std::string, int>
      refusals;  // How many calls of a function are let through before one fails.
  std::atomic<int> memory_refusals{0};
  Stream default_stream;
};

World& world() {
  static World* const the_world = new World;  // Streams may outlive main().
  return *the_world;
}

thread_local int contexts = 0;

Stream& stream_of(void* handle) {
  return reinterpret_cast<std::uintptr_t>(handle) <= 2 ? world().default_stream
                                                       : *static_cast<Stream*>(handle);
}

// Returns the allocation that holds an address, or null.
const Allocation* find(Address address, Address* begin) {
  const std::lock_guard lock(world().mutex);
  auto next = world().memory.upper_bound(address);
  if (next == world().memory.begin()) return nullptr;
  --next;
  if (address >= next->first + next->second.bytes) return nullptr;
  *begin = next->first;
  return &next->second;
}

std::byte* touchable(Address address) {
  Address begin = 0;
  const Allocation* const found = find(address, &begin);
  if (found == nullptr) return reinterpret_cast<std::byte*>(address);
  return found->alias + (address - begin);
}

bool refused(const char* function) {
  {
    const std::lock_guard lock(world().mutex);
    const auto found = world().refusals.find(function);
    if (found == world().refusals.end() || found->second-- != 0) return false;
  }
  // Meanwhile the call may end for the engine, which must not be taken for its end.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return true;
}

int allocate(Address* result, std::size_t bytes, bool of_device) {
  const int file = memfd_create("stand-in", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kOutOfMemory;
  const int seen = of_device ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* const address = mmap(nullptr, bytes, seen, MAP_SHARED, file, 0);
  void* const alias = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (address == MAP_FAILED || alias == MAP_FAILED) return kOutOfMemory;
  std::memset(alias, 0xa5, bytes);
  *result = reinterpret_cast<Address>(address);
  const std::lock_guard lock(world().mutex);
  world().memory[*result] = {bytes, static_cast<std::byte*>(alias), of_device};
  return 0;
}

int release(Address address) {
  const std::lock_guard lock(world().mutex);
  const auto found = world().memory.find(address);
  if (found == world().memory.end()) return kInvalidValue;
  munmap(reinterpret_cast<void*>(address), found->second.bytes);
  munmap(found->second.alias, found->second.bytes);
  world().memory.erase(found);
  return 0;
}

int pointer_attribute(void* value, int attribute, Address address) {
  Address begin = 0;
  const Allocation* const found = find(address, &begin);
  if (found == nullptr) return kInvalidValue;
  switch (attribute) {
    case 1: *static_cast<void**>(value) = &world(); return 0;
    case 2: *static_cast<unsigned*>(value) = found->of_device ? 2 : 1; return 0;
    case 9: *static_cast<int*>(value) = 0; return 0;
    default: return kInvalidValue;
  }
}

int stream_context(void*, void** context) {
  *context = &world();
  return 0;
}

int stream_capturing(void* stream, int* status) {
  *status = stream_of(stream).capturing ? 1 : 0;
  return 0;
}

int retain_context(void** context, int) {
  *context = &world();
  return 0;
}

int release_context(int) { return 0; }

int current_context(void** context) {
  *context = contexts > 0 ? &world() : nullptr;
  return 0;
}

int push_context(void* context) {
  if (context == nullptr) return kInvalidContext;
  ++contexts;
  return 0;
}

int pop_context(void** context) {
  if (contexts == 0) return kInvalidContext;
  --contexts;
  *context = &world();
  return 0;
}

int allocate_host(void** memory, std::size_t bytes, unsigned) {
  if (contexts == 0) return kInvalidContext;
  if (world().memory_refusals.fetch_sub(1) > 0) return kOutOfMemory;
  world().memory_refusals = 0;
  Address address = 0;
  const int result = allocate(&address, bytes, false);
  *memory = reinterpret_cast<void*>(address);
  return result;
}

int free_host(void* memory) {
  return contexts == 0 ? kInvalidContext : release(reinterpret_cast<Address>(memory));
}

int copy(Address to, Address from, std::size_t bytes, void* stream) {
  if (contexts == 0) return kInvalidContext;
  if (refused("cuMemcpyAsync")) return kInvalidValue;
  stream_of(stream).push([=] { std::memcpy(touchable(to), touchable(from), bytes); });
  return 0;
}

int wait_value(void* stream, Address word, std::uint32_t value, unsigned flags) {
  if (contexts == 0 || flags != 0) return kInvalidContext;
  if (refused("cuStreamWaitValue32")) return kInvalidValue;
  stream_of(stream).push([=] {
    auto& waited = *reinterpret_cast<std::uint32_t*>(word);
    while (static_cast<std::int32_t>(std::atomic_ref(waited).load() - value) < 0)
      std::this_thread::yield();
  });
  return 0;
}

int launch_host(void* stream, void (*function)(void*), void* argument) {
  if (contexts == 0) return kInvalidContext;
  if (refused("cuLaunchHostFunc")) return kInvalidValue;
  stream_of(stream).push([=] { function(argument); });
  return 0;
}

int initialize(unsigned) { return 0; }

int allocate_of_device(Address* address, std::size_t bytes) {
  return contexts == 0 ? kInvalidContext : allocate(address, bytes, true);
}

int free_of_device(Address address) { return contexts == 0 ? kInvalidContext : release(address); }

int create_stream(void** stream, unsigned) {
  if (contexts == 0) return kInvalidContext;
  *stream = new Stream;
  return 0;
}

int destroy_stream(void* stream) {
  delete static_cast<Stream*>(stream);
  return 0;
}

// An event is the point of a stream at which it was last recorded.
using Point = std::shared_ptr<std::atomic<bool>>;

int create_event(void** event, unsigned) {
  if (contexts == 0) return kInvalidContext;
  *event = new Point(std::make_shared<std::atomic<bool>>(true));
  return 0;
}

int destroy_event(void* event) {
  delete static_cast<Point*>(event);
  return 0;
}

int record_event(void* event, void* stream) {
  const Point point = std::make_shared<std::atomic<bool>>(false);
  *static_cast<Point*>(event) = point;
  stream_of(stream).push([point] {
    *point = true;
    point->notify_all();
  });
  return 0;
}

int wait_for_event(void* stream, void* event, unsigned) {
  stream_of(stream).push([point = *static_cast<Point*>(event)] { point->wait(false); });
  return 0;
}

int synchronize(void* stream) {
  stream_of(stream).drain();
  return 0;
}

// Graphs are for the other stand-in, of tests/cuda.
template <typename... Arguments>
int not_supported(Arguments...) {
  return 801;
}
void* const kCaptureInfo = reinterpret_cast<void*>(
    not_supported<void*, int*, std::uint64_t*, void**, void* const**, std::size_t*>);
void* const kUpdateDependencies =
    reinterpret_cast<void*>(not_supported<void*, void**, std::size_t, unsigned>);
void* const kCreateUserObject =
    reinterpret_cast<void*>(not_supported<void**, void*, void (*)(void*), unsigned, unsigned>);
void* const kReleaseUserObject = reinterpret_cast<void*>(not_supported<void*, unsigned>);
void* const kRetainUserObject =
    reinterpret_cast<void*>(not_supported<void*, void*, unsigned, unsigned>);
int exchange_capture_mode(int*) { return 0; }

int error_text(int, const char** text) {
  *text = "an error of the stand-in";
  return 0;
}

}  // namespace

EXPORT int cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, int*) {
  static const std::map<std::string, void*> functions = {
      {"cuPointerGetAttribute", reinterpret_cast<void*>(pointer_attribute)},
      {"cuStreamGetCtx", reinterpret_cast<void*>(stream_context)},
      {"cuStreamIsCapturing", reinterpret_cast<void*>(stream_capturing)},
      {"cuStreamGetCaptureInfo", kCaptureInfo},
      {"cuStreamUpdateCaptureDependencies", kUpdateDependencies},
      {"cuThreadExchangeStreamCaptureMode", reinterpret_cast<void*>(exchange_capture_mode)},
      {"cuUserObjectCreate", kCreateUserObject},
      {"cuUserObjectRelease", kReleaseUserObject},
      {"cuGraphRetainUserObject", kRetainUserObject},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(retain_context)},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(release_context)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(current_context)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(push_context)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(pop_context)},
      {"cuMemHostAlloc", reinterpret_cast<void*>(allocate_host)},
      {"cuMemFreeHost", reinterpret_cast<void*>(free_host)},
      {"cuMemcpyAsync", reinterpret_cast<void*>(copy)},
      {"cuStreamWaitValue32", reinterpret_cast<void*>(wait_value)},
      {"cuLaunchHostFunc", reinterpret_cast<void*>(launch_host)},
      {"cuInit", reinterpret_cast<void*>(initialize)},
      {"cuMemAlloc", reinterpret_cast<void*>(allocate_of_device)},
      {"cuMemFree", reinterpret_cast<void*>(free_of_device)},
      {"cuStreamCreate", reinterpret_cast<void*>(create_stream)},
      {"cuStreamDestroy", reinterpret_cast<void*>(destroy_stream)},
      {"cuEventCreate", reinterpret_cast<void*>(create_event)},
      {"cuEventDestroy", reinterpret_cast<void*>(destroy_event)},
      {"cuEventRecord", reinterpret_cast<void*>(record_event)},
      {"cuStreamWaitEvent", reinterpret_cast<void*>(wait_for_event)},
      {"cuStreamSynchronize", reinterpret_cast<void*>(synchronize)},
      {"cuGetErrorString", reinterpret_cast<void*>(error_text)},
  };
  const auto found = functions.find(name);
  *function = found == functions.end() ? nullptr : found->second;
  return found == functions.end() ? kNotFound : 0;
}

EXPORT int cuPointerGetAttribute(void* value, int attribute, Address address) {
  return pointer_attribute(value, attribute, address);
}

// Tests call the functions below in place of those by which a program allocates and launches.
EXPORT void* standInAllocate(std::size_t bytes) {
  Address address = 0;
  return allocate(&address, bytes, true) == 0 ? reinterpret_cast<void*>(address) : nullptr;
}
EXPORT void standInFree(void* memory) { release(reinterpret_cast<Address>(memory)); }
EXPORT void* standInTouch(void* memory) { return touchable(reinterpret_cast<Address>(memory)); }
EXPORT void* standInStream() { return new Stream; }
EXPORT void standInDestroyStream(void* stream) { delete static_cast<Stream*>(stream); }
EXPORT void standInLaunch(void* stream, const std::function<void()>* work) {
  stream_of(stream).push(*work);
}
EXPORT void standInSynchronize(void* stream) { stream_of(stream).drain(); }
EXPORT void standInCapture(void* stream, bool on) { stream_of(stream).capturing = on; }
/// Has the function `name` fail once, after `before` calls that succeed.
EXPORT void standInRefuse(const char* name, int before) {
  const std::lock_guard lock(world().mutex);
  world().refusals[name] = before;
}
EXPORT void standInRefuseMemory(int times) { world().memory_refusals = times; }
/// Returns the number of allocations of pinned memory.
EXPORT int standInPinned() {
  const std::lock_guard lock(world().mutex);
  int count = 0;
  for (const auto& [address, allocation] : world().memory) count += !allocation.of_device;
  return count;
}
