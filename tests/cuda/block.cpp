#include "tests/cuda/block.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace tutti::stand_in {

void BlockThread::begin(const Launch& launch, Size3 at, std::uint32_t number_in_block) {
  launch_ = &launch;
  number = number_in_block;
  block_size = launch.block;
  grid_size = launch.grid;
  block = at;
  index = {number % block_size.x, number / block_size.x % block_size.y,
           number / block_size.x / block_size.y};
  shared = runner_.shared_.get();
  static_shared = launch.kernel->shared_bytes;
  dynamic_shared = launch.dynamic_shared;
  unchanged_ = 0;
  for (Seen& seen : seen_) seen = {};
  jitter_ = 0;
  if (launch.jitter != 0)
    jitter_ = (launch.jitter + 1) * 0x9e3779b97f4a7c15 + number * 0x2545f4914f6cdd1d + at.x + 1;
  state_ = State::paused;
  fiber_.start(&run, this);
}

void BlockThread::run(void* self) {
  auto& thread = *static_cast<BlockThread*>(self);
  acquire(&thread.runner_.begin_);
  thread.launch_->kernel->run(thread, thread.launch_->parameters.data());
  release(&thread.runner_.end_);
  thread.state_ = State::ended;
}

void BlockThread::wait() {
  state_ = State::waiting;
  fiber_.leave();
}

void BlockThread::pause() {
  unchanged_ = 0;
  state_ = State::paused;
  fiber_.leave();
}

unsigned BlockThread::synchronize(unsigned number_of_barrier, unsigned threads, bool vote) {
  const Unwatched unwatched;
  Block::Barrier& barrier = runner_.barriers_.at(number_of_barrier);
  const unsigned generation = barrier.generation % 2;
  release(&barrier.order[generation]);
  barrier.votes += vote ? 1 : 0;
  barrier.waiting.push_back(this);
  state_ = State::waiting;
  ++barrier.arrived;
  runner_.complete(barrier, threads);
  fiber_.leave();
  acquire(&barrier.order[generation]);
  return barrier.result[generation];
}

void BlockThread::arrive(unsigned number_of_barrier, unsigned threads) {
  const Unwatched unwatched;
  Block::Barrier& barrier = runner_.barriers_.at(number_of_barrier);
  release(&barrier.order[barrier.generation % 2]);
  ++barrier.arrived;
  runner_.complete(barrier, threads);
}

const std::uint64_t* BlockThread::meet(std::uint32_t lanes, std::uint64_t value) {
  const Unwatched unwatched;
  const std::uint32_t lane = number % kWarp;
  if ((lanes >> lane & 1) == 0) fail("a lane meets others whose mask does not name it");
  Block::Meeting& meeting = runner_.meeting(number / kWarp, lanes);
  const unsigned generation = meeting.generation % 2;
  release(&meeting.order[generation]);
  meeting.values[generation][lane] = value;
  meeting.arrived |= 1u << lane;
  if (meeting.arrived == meeting.lanes) {
    meeting.arrived = 0;
    ++meeting.generation;
    runner_.wake(meeting.waiting);
  } else {
    meeting.waiting.push_back(this);
    wait();
  }
  acquire(&meeting.order[generation]);
  return meeting.values[generation].data();
}

void BlockThread::fail(const char* message) {
  std::fprintf(stderr, "stand-in: kernel %s, block %u, thread %u: %s\n", launch_->kernel->name,
               block.x, number, message);
  _exit(86);
}

void Block::run(const Launch& launch, Size3 index) {
  prepare(launch, index);
  release(&begin_);
  unsigned idle_rounds = 0;
  while (live_ != 0) {
    if (ready_.empty()) report_deadlock();
    if (run_round()) {
      idle_rounds = 0;
    } else if (++idle_rounds < 256) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  acquire(&end_);
}

void Block::prepare(const Launch& launch, Size3 index) {
  launch_ = &launch;
  index_ = index;
  const std::size_t bytes = std::size_t{launch.kernel->shared_bytes} + launch.dynamic_shared;
  if (bytes != shared_bytes_ || shared_ == nullptr)
    shared_.reset(
        static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), kAlignment)));
  shared_bytes_ = bytes;
  std::memset(shared_.get(), 0xa5, bytes);  // A kernel finds shared memory as others have left it.
  count_ = live_ = static_cast<std::uint32_t>(launch.block.count());
  for (Barrier& barrier : barriers_) {
    barrier.arrived = barrier.votes = 0;
    barrier.waiting.clear();
  }
  meetings_.clear();
  meetings_.resize((count_ + kWarp - 1) / kWarp);
  random_.seed(static_cast<std::uint32_t>(launch.jitter * 31 + index.x + 1));
  while (threads_.size() < count_) threads_.push_back(std::make_unique<BlockThread>(*this));
  ready_.clear();
  for (std::uint32_t each = 0; each < count_; ++each) {
    threads_[each]->begin(launch, index, each);
    ready_.push_back(threads_[each].get());
  }
}

// Runs each thread that can run once, and returns whether one of them has done more than to look at
// memory that has not changed.
bool Block::run_round() {
  round_.clear();
  std::swap(round_, ready_);
  if (launch_->jitter != 0) std::shuffle(round_.begin(), round_.end(), random_);
  bool progress = false;
  for (BlockThread* const thread : round_) {
    thread->fiber_.resume();
    switch (thread->state_) {
      case BlockThread::State::paused: ready_.push_back(thread); break;
      case BlockThread::State::waiting: progress = true; break;
      case BlockThread::State::ended:
        progress = true;
        --live_;
        break;
    }
  }
  return progress;
}

void Block::wake(std::vector<BlockThread*>& waiting) {
  ready_.insert(ready_.end(), waiting.begin(), waiting.end());
  waiting.clear();
}

void Block::complete(Barrier& barrier, unsigned threads) {
  if (barrier.arrived < (threads == 0 ? count_ : threads)) return;
  barrier.result[barrier.generation % 2] = barrier.votes;
  barrier.arrived = barrier.votes = 0;
  ++barrier.generation;
  wake(barrier.waiting);
}

// Lanes that the block lacks, since it does not fill its last warp, are waited for by nobody.
Block::Meeting& Block::meeting(std::uint32_t warp, std::uint32_t lanes) {
  const std::uint32_t there = count_ - warp * kWarp;
  const std::uint32_t named = there < kWarp ? lanes & ((1u << there) - 1) : lanes;
  for (const auto& each : meetings_[warp])
    if (each->lanes == named) return *each;
  meetings_[warp].push_back(std::make_unique<Meeting>());
  meetings_[warp].back()->lanes = named;
  return *meetings_[warp].back();
}

void Block::report_deadlock() const {
  std::fprintf(stderr,
               "stand-in: kernel %s, block %u: %u of %u threads wait for others of the block at a "
               "barrier or in a warp, and these have ended or wait elsewhere\n",
               launch_->kernel->name, index_.x, live_, count_);
  _exit(86);
}

}  // namespace tutti::stand_in
