#include "tests/cuda/stream.h"

#include <atomic>

namespace tutti::stand_in {
namespace {

unsigned next_number() {
  static std::atomic<unsigned> next{0};
  return next++;
}

}  // namespace

bool& in_host_function() {
  thread_local bool inside = false;
  return inside;
}

Stream::Stream(Context& context, bool blocking, int priority)
    : context_(context), blocking_(blocking), priority_(priority), number_(next_number()) {}

std::shared_ptr<Stream> Stream::make(Context& context, bool blocking, int priority) {
  const std::shared_ptr<Stream> stream(new Stream(context, blocking, priority));
  std::thread([stream] { stream->run(); }).detach();
  return stream;
}

std::uint64_t Stream::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return ++pushed_;
}

std::uint64_t Stream::pushed() const {
  const std::lock_guard lock(mutex_);
  return pushed_;
}

bool Stream::ended(std::uint64_t work) const {
  const std::lock_guard lock(mutex_);
  return ended_ >= work;
}

void Stream::wait(std::uint64_t work) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ >= work; });
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    jitter(std::uint64_t{number_} << 32 | ended_);
    work();
    work = nullptr;
    lock.lock();
    ++ended_;
    changed_.notify_all();
  }
}

std::shared_ptr<Stream> Context::stream(void* handle) {
  const std::lock_guard lock(mutex_);
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number <= 1) {
    if (legacy_ == nullptr) legacy_ = Stream::make(*this, true, 0);
    return legacy_;
  }
  if (number == 2) {
    auto& mine = of_threads_[std::this_thread::get_id()];
    if (mine == nullptr) mine = Stream::make(*this, true, 0);
    return mine;
  }
  const auto found = streams_.find(handle);
  return found == streams_.end() ? nullptr : found->second;
}

void* Context::create_stream(bool blocking, int priority) {
  const std::shared_ptr<Stream> stream = Stream::make(*this, blocking, priority);
  const std::lock_guard lock(mutex_);
  streams_[stream.get()] = stream;
  return stream.get();
}

bool Context::destroy_stream(void* handle) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(handle);
  if (found == streams_.end()) return false;
  found->second->close();
  destroyed_.push_back(found->second);
  streams_.erase(found);
  return true;
}

std::vector<std::shared_ptr<Stream>> Context::all() const {
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& [handle, stream] : streams_) streams.push_back(stream);
  for (const auto& [thread, stream] : of_threads_) streams.push_back(stream);
  return streams;
}

std::uint64_t Context::submit(Stream& stream, std::function<void()> work) {
  struct Before {
    std::shared_ptr<Stream> stream;
    std::uint64_t work;
  };
  const std::lock_guard lock(mutex_);
  std::vector<Before> before;
  const auto add = [&](const std::shared_ptr<Stream>& other) {
    const std::uint64_t last = other->pushed();
    if (!other->ended(last)) before.push_back({other, last});
  };
  if (&stream == legacy_.get()) {
    for (const auto& other : all())
      if (other->blocking()) add(other);
  } else if (stream.blocking() && legacy_ != nullptr) {
    add(legacy_);
  }
  if (before.empty()) return stream.push(std::move(work));
  return stream.push([before = std::move(before), work = std::move(work)] {
    for (const Before& each : before) each.stream->wait(each.work);
    work();
  });
}

void Context::synchronize() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = all();
    if (legacy_ != nullptr) streams.push_back(legacy_);
  }
  for (const auto& stream : streams) stream->wait(stream->pushed());
}

bool Event::ended() {
  const std::lock_guard lock(mutex);
  return launches == 0 && (stream == nullptr || stream->ended(work));
}

void Event::wait() {
  std::shared_ptr<Stream> recorded;
  std::uint64_t number = 0;
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return launches == 0; });
    recorded = stream;
    number = work;
  }
  if (recorded != nullptr) recorded->wait(number);
}

}  // namespace tutti::stand_in
