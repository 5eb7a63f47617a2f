// Streams of the stand-in: what is submitted to one runs in order on a host thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/cuda/device.h"

namespace tutti::stand_in {

class Context;
struct Capture;
struct Node;

/// It may be used by any thread. It lives until all that was submitted has run.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static std::shared_ptr<Stream> make(Context& context, bool blocking, int priority);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Context& context() const { return context_; }
  bool blocking() const { return blocking_; }
  int priority() const { return priority_; }
  unsigned number() const { return number_; }

  /// Returns the number of the work, from 1 on. Context::submit() calls it.
  std::uint64_t push(std::function<void()> work);
  std::uint64_t pushed() const;
  bool ended(std::uint64_t work) const;
  void wait(std::uint64_t work) const;
  /// No more is pushed: the stream's thread ends after the rest.
  void close();

 private:
  Stream(Context& context, bool blocking, int priority);
  void run();

  Context& context_;
  const bool blocking_;
  const int priority_;
  const unsigned number_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::uint64_t pushed_ = 0, ended_ = 0;
  bool closed_ = false;
};

/// The primary context of a device. It may be used by any thread.
class Context {
 public:
  explicit Context(int ordinal) : device_(ordinal) {}
  Device& device() { return device_; }

  /// The stream of a handle: null and the two handles of default streams are known.
  std::shared_ptr<Stream> stream(void* handle);
  void* create_stream(bool blocking, int priority);
  bool destroy_stream(void* handle);
  /// Work on the legacy default stream runs after that of all blocking streams that came before it,
  /// and theirs after the legacy stream's.
  std::uint64_t submit(Stream& stream, std::function<void()> work);
  /// Waits for all streams.
  void synchronize();
  // The driver's lock is held for both.
  int retained = 0;
  unsigned long long generation =
      0;  ///< Another one each time that it is retained by nobody before.

 private:
  std::vector<std::shared_ptr<Stream>> all() const;

  Device device_;
  mutable std::mutex mutex_;
  std::shared_ptr<Stream> legacy_;
  std::map<std::thread::id, std::shared_ptr<Stream>> of_threads_;
  std::map<void*, std::shared_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<Stream>> destroyed_;  ///< They stay, for events that name them.
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<Stream> stream;  ///< Null until it is recorded.
  std::uint64_t work = 0;
  int launches = 0;  ///< How many launches of graphs have not come to the nodes that record it.
  std::int64_t nanoseconds = 0;
  bool captured = false;           ///< Whether it was last recorded on a stream under capture.
  std::weak_ptr<Capture> capture;  ///< The capture in that case, until it has ended.
  std::vector<Node*> nodes;        ///< Those that it stands for in that case.
  bool ended();
  void wait();
};

/// True in a thread of the driver that runs a host function, where no function of the driver may be
/// called.
bool& in_host_function();

}  // namespace tutti::stand_in
