// What the host does for the kernels, in its simplest form: it lays out a program in memory that
// kernels reach, with rings between ranks of this process, and launches until the call is done.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/program.h"
#include "gpu.h"
#include "transport/ring/ring.h"

namespace tutti::device {

/// The rings between the ranks of a test, by sender, receiver and channel.
class Rings {
 public:
  Rings(Gpu& gpu, std::size_t data_bytes) : gpu_(gpu), data_bytes_(data_bytes) {}
  std::size_t data_bytes() const { return data_bytes_; }
  RingMemory& ring(int from, int to, int channel) {
    auto& memory = rings_[{from, to, channel}];
    if (memory == nullptr) memory = gpu_.allocate(RingMemory::bytes(data_bytes_));
    return *reinterpret_cast<RingMemory*>(memory.get());
  }
  /// The ends of the channels, which all programs of a rank share.
  SendEnd& send_end(int from, int to, int channel) {
    auto& memory = sends_[{from, to, channel}];
    if (memory == nullptr) {
      memory = gpu_.allocate(sizeof(SendEnd));
      RingMemory& of = ring(from, to, channel);
      auto& end = *reinterpret_cast<SendEnd*>(memory.get());
      end.lines = reinterpret_cast<RingLine*>(of.lines);
      end.released = reinterpret_cast<std::uint64_t*>(&of.released);
      end.data = of.data();
      end.data_bytes = data_bytes_;
      end.peer = to;
    }
    return *reinterpret_cast<SendEnd*>(memory.get());
  }
  RecvEnd& recv_end(int from, int to, int channel) {
    auto& memory = receives_[{from, to, channel}];
    if (memory == nullptr) {
      memory = gpu_.allocate(sizeof(RecvEnd));
      RingMemory& of = ring(from, to, channel);
      auto& end = *reinterpret_cast<RecvEnd*>(memory.get());
      offered_.push_back(gpu_.allocate(sizeof(OfferedRing)));
      auto& offered = *reinterpret_cast<OfferedRing*>(offered_.back().get());
      offered = {1, reinterpret_cast<RingLine*>(of.lines),
                 reinterpret_cast<std::uint64_t*>(&of.released), of.data(), data_bytes_};
      end.offered = &offered;
      end.peer = from;
    }
    return *reinterpret_cast<RecvEnd*>(memory.get());
  }

 private:
  using Key = std::tuple<int, int, int>;
  Gpu& gpu_;
  const std::size_t data_bytes_;
  std::map<Key, std::shared_ptr<std::byte>> rings_, sends_, receives_;
  std::vector<std::shared_ptr<std::byte>> offered_;
};

/// One rank's program, in one stripe or more, and the words that its kernels and the host share.
class Rank {
 public:
  Rank(Gpu& gpu, std::vector<Program> stripes, Rings* rings = nullptr, int rank = 0)
      : gpu_(gpu), stream_(gpu), programs_(std::move(stripes)) {
    const Program& first = programs_.front();
    auto* const records = array<ProgramRecord>(programs_.size());
    for (std::size_t s = 0; s < programs_.size(); ++s)
      lay_out(programs_[s], records[s], rings, rank);
    call_.stripes = records;
    call_.lanes = static_cast<std::uint32_t>(first.lanes.size());
    call_.blocks = call_.lanes * static_cast<std::uint32_t>(programs_.size());
    control_ = array<Control>(1);
    call_.control = control_;
    call_.counts = array<Counts>(1);
    call_.awaited = array<std::int32_t>(call_.blocks);
    call_.scratch = array<std::byte>(first.scratch_bytes * programs_.size());
    call_.pieces = first.pieces;
    call_.fingerprint = first.fingerprint;
    call_.patience = 50;
  }

  CallRecord& call() { return call_; }
  Control& control() { return *control_; }
  template <class T>
  T* array(std::size_t count) {
    memory_.push_back(gpu_.allocate(count * sizeof(T)));
    return reinterpret_cast<T*>(memory_.back().get());
  }

  /// Begins a call; launches follow.
  void begin(const std::byte* input, std::byte* output) {
    call_.input = input;
    call_.output = output;
    ++call_.ticket;
    ++call_.run;
    ++call_.operation;
    call_.attempt = 0;
  }
  /// Launches once; returns whether the call is done.
  bool launch(const std::string& kernel, std::uint32_t threads) {
    ++call_.launch;
    stream_.run(kernel, call_, threads);
    ++call_.attempt;
    return control_->done == call_.ticket;
  }

 private:
  template <class T>
  T* copy(const std::vector<T>& from) {
    T* const to = array<T>(from.size());
    if (!from.empty()) std::memcpy(to, from.data(), from.size() * sizeof(T));
    return to;
  }
  void lay_out(const Program& program, ProgramRecord& record, Rings* rings, int rank) {
    record.head = program;
    record.lanes = copy(program.lanes);
    record.steps = copy(program.steps);
    record.operands = copy(program.operands);
    record.masks = program.masks.empty() ? nullptr : copy(program.masks);
    record.states = array<LaneState>(program.lanes.size());
    auto** const sends = array<SendEnd*>(program.sends.size());
    auto** const receives = array<RecvEnd*>(program.receives.size());
    record.sends = sends;
    record.receives = receives;
    if (rings == nullptr) return;
    for (std::size_t p = 0; p < program.sends.size(); ++p)
      sends[p] = &rings->send_end(rank, program.sends[p].peer, program.sends[p].channel);
    for (std::size_t p = 0; p < program.receives.size(); ++p)
      receives[p] = &rings->recv_end(program.receives[p].peer, rank, program.receives[p].channel);
  }

  Gpu& gpu_;
  Gpu::Stream stream_;
  const std::vector<Program> programs_;
  std::vector<std::shared_ptr<std::byte>> memory_;
  CallRecord call_{};
  Control* control_ = nullptr;
};

/// Launches until the ranks, which have begun a call each, are done, each in a thread of its own.
inline void run_all(std::span<const std::unique_ptr<Rank>> ranks, const std::string& kernel,
                    std::uint32_t threads) {
  const auto run = [&](Rank& rank) {
    constexpr int kMostLaunches = 20'000;
    for (int launch = 0; launch < kMostLaunches; ++launch) {
      if (rank.launch(kernel, threads)) return;
      ASSERT_EQ(rank.control().exited, rank.call().launch);
      std::this_thread::yield();
    }
    FAIL() << "a rank is not done, and waits for rank " << rank.call().awaited[0];
  };
  std::vector<std::thread> all;
  for (const auto& rank : ranks) all.emplace_back([&run, &rank] { run(*rank); });
  for (std::thread& thread : all) thread.join();
}

/// The algorithm of this name.
inline const Algorithm& named(std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.name == name) return algorithm;
  throw std::invalid_argument("no algorithm is called " + std::string(name));
}

}  // namespace tutti::device
