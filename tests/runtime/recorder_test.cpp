// The flight recorder: what it keeps, what other threads and processes read of it, and dumps.
#include "runtime/diagnosis/recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <tutti/tutti.hpp>

#include "runtime/communicator_impl.h"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

StatusPage::Entry entry(std::uint64_t count) {
  CallSignature call;
  call.what = Collective::all_reduce;
  call.type = DataType::f32;
  call.count = count;
  return StatusPage::entry_of(call);
}

// Reads all records of the n-th ring as another process does: through the file.
std::vector<ReadRecord> records_of(const TraceMemory& memory, std::size_t extent = 0) {
  std::vector<Record> copy(memory.capacity());
  const std::size_t offset = extent_offset(extent, memory.capacity()) + kRingHeadBytes;
  EXPECT_GE(
      pread(memory.fd(), copy.data(), copy.size() * sizeof(Record), static_cast<off_t>(offset)), 0);
  std::vector<ReadRecord> found;
  for (const Record& each : copy)
    if (ReadRecord record; read(each, record)) found.push_back(record);
  std::sort(found.begin(), found.end(),
            [](const ReadRecord& a, const ReadRecord& b) { return a.sequence < b.sequence; });
  return found;
}

std::vector<std::uint64_t> numbers_of(const std::vector<ReadRecord>& records) {
  std::vector<std::uint64_t> numbers;
  for (const ReadRecord& each : records) numbers.push_back(each.number);
  return numbers;
}

TEST(Recorder, KeepsTheLastOperations) {
  TraceMemory memory(64);
  Recorder recorder(memory, {7, "it", 2}, 1, 3);
  for (std::uint64_t number = 0; number < 100; ++number)
    recorder.begin_run(nullptr, entry(number), number, ticks());
  const auto records = records_of(memory);
  ASSERT_EQ(records.size(), 64u);
  EXPECT_EQ(records.front().number, 36u);
  EXPECT_EQ(records.back().number, 99u);
  for (const ReadRecord& each : records) EXPECT_EQ(each.count, each.number);
}

TEST(Recorder, KeepsShortCallsOfTheSameKindInOneRecordUntilTheClockIsDueAgain) {
  TraceMemory memory(64);
  Recorder recorder(memory, {}, 0, 2);
  const int kind = 0, another = 0;
  EXPECT_FALSE(recorder.repeats(&kind));
  recorder.begin_run(&kind, entry(1), 10, ticks());
  for (std::uint64_t more = 1; more <= Record::kMore; ++more) {
    EXPECT_TRUE(recorder.repeats(&kind));
    EXPECT_TRUE(recorder.has(10 + more));
    EXPECT_FALSE(recorder.has(9 + more));
  }
  EXPECT_FALSE(recorder.repeats(&kind));
  recorder.begin_run(&kind, entry(1), 11 + Record::kMore, ticks());
  EXPECT_FALSE(recorder.repeats(&another));
  EXPECT_TRUE(recorder.repeats(&kind));
  recorder.begin_transfer({Record::kSend, DataType::f32, 1, 1, 0}, 0);
  EXPECT_FALSE(recorder.repeats(&kind));  // its record may be overwritten by what follows
  const auto records = records_of(memory);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].more, Record::kMore);
  EXPECT_EQ(records[1].more, 1u);
  EXPECT_EQ(records[1].ended, Record::kSoon);
}

TEST(Recorder, KeepsTransfersOfTheSameKindInOneRecordUntilAnythingElseIsRecorded) {
  TraceMemory memory(64);
  Recorder recorder(memory, {}, 0, 2);
  const Recorder::TransferEntry send{Record::kSend, DataType::f32, 4, 1, 9},
      receive{Record::kReceive, DataType::f32, 4, 1, 9};
  EXPECT_FALSE(recorder.transfer_repeats(send));
  recorder.transfer_soon(send, ticks());
  EXPECT_FALSE(recorder.transfer_repeats(receive));
  recorder.transfer_soon(receive, ticks());
  EXPECT_TRUE(recorder.transfer_repeats(send));
  EXPECT_TRUE(recorder.transfer_repeats(receive));
  EXPECT_TRUE(recorder.transfer_repeats(send));
  for (const Recorder::TransferEntry& other :
       {Recorder::TransferEntry{Record::kSend, DataType::int32, 4, 1, 9},
        {Record::kSend, DataType::f32, 5, 1, 9},
        {Record::kSend, DataType::f32, 4, 0, 9},
        {Record::kSend, DataType::f32, 4, 1, 8}})
    EXPECT_FALSE(recorder.transfer_repeats(other));
  const auto first = records_of(memory);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].more, 2u);
  EXPECT_EQ(first[1].more, 1u);
  recorder.begin(entry(1), 0, ticks());
  EXPECT_FALSE(recorder.transfer_repeats(send));
  recorder.transfer_soon(send, ticks());
  EXPECT_EQ(records_of(memory).back().number, 3u);
  recorder.begin_transfer(receive, 0);
  EXPECT_FALSE(recorder.transfer_repeats(send));
  recorder.transfer_soon(send, ticks());
  for (std::uint32_t more = 1; more <= Record::kMore; ++more)
    EXPECT_TRUE(recorder.transfer_repeats(send));
  EXPECT_FALSE(recorder.transfer_repeats(send));
}

TEST(Recorder, RoundsItsCapacityUpToAPowerOfTwo) {
  EXPECT_EQ(TraceMemory(65).capacity(), 128u);
  EXPECT_EQ(TraceMemory(1).capacity(), 64u);
}

TEST(Recorder, DoesNotOverwriteWhatIsUnderWay) {
  TraceMemory memory(64);
  Recorder recorder(memory, {}, 0, 2);
  recorder.begin(entry(1), 100, ticks());
  for (int i = 0; i < 500; ++i)
    recorder.end(recorder.begin_transfer({Record::kSend, DataType::f32, 1, 1, 0}, 0),
                 Record::kGood);
  const auto records = records_of(memory);
  ASSERT_EQ(records.size(), 64u);
  EXPECT_EQ(records.front().number, 100u);
  EXPECT_EQ(records.front().ended, Record::kUnderWay);
  EXPECT_EQ(records.back().number, 499u);
}

TEST(Recorder, OverwritesTheOldestIfAllAreUnderWay) {
  TraceMemory memory(64);
  Recorder recorder(memory, {}, 0, 2);
  std::vector<std::uint64_t> positions;
  for (int i = 0; i < 66; ++i)
    positions.push_back(recorder.begin_transfer({Record::kReceive, DataType::uint8, 1, 1, i}, 0));
  const auto numbers = numbers_of(records_of(memory));
  ASSERT_EQ(numbers.size(), 64u);
  EXPECT_EQ(numbers.front(), 2u);
  EXPECT_EQ(numbers.back(), 65u);
  recorder.end(positions[0], Record::kGood);  // its record is another operation's by now
  for (const ReadRecord& each : records_of(memory)) EXPECT_EQ(each.ended, Record::kUnderWay);
}

TEST(Recorder, SaysHowAnOperationEnded) {
  TraceMemory memory(64);
  Recorder recorder(memory, {}, 0, 2);
  recorder.begin(entry(1), 0, ticks());
  recorder.end();
  recorder.begin(entry(1), 1, ticks());
  recorder.fail(ErrorKind::timeout);
  recorder.fail(ErrorKind::peer_lost);  // of a call that never began
  const auto records = records_of(memory);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].outcome, Record::kGood);
  EXPECT_GE(records[0].ended, records[0].began);
  EXPECT_EQ(records[1].outcome, static_cast<std::uint32_t>(ErrorKind::timeout));
}

TEST(Recorder, SaysForWhomAnOperationWaitedLongest) {
  TraceMemory memory(64);
  Recorder recorder(memory, {}, 0, 4);
  const TimePoint start{std::chrono::seconds(1)};
  const auto waits_for = [&] { return records_of(memory).back().waits_for; };
  recorder.begin(entry(1), 0, ticks());
  EXPECT_EQ(waits_for(), -1);
  recorder.waits(3, start);
  EXPECT_EQ(waits_for(), 3);
  recorder.waits(2, start + std::chrono::seconds(5));
  EXPECT_EQ(waits_for(), 2);
  recorder.waits(-1, start + std::chrono::seconds(6));
  EXPECT_EQ(waits_for(), 3);
  recorder.end();
  recorder.begin(entry(1), 1, ticks());
  recorder.waits(1, start + std::chrono::seconds(7));
  EXPECT_EQ(waits_for(), 1);
}

TEST(Recorder, KeepsHowLongACallWasQueued) {
  TraceMemory memory(64);
  Recorder recorder(memory, {}, 0, 2);
  recorder.begin(entry(1), 0, 1'000'000);
  recorder.queued(1'000'000 - 5 * Record::kQueuedTicks);
  EXPECT_EQ(records_of(memory)[0].more, 5u);
  recorder.queued(1'000'001);  // it cannot have been called later
  EXPECT_EQ(records_of(memory)[0].more, 0u);
}

// Every record is written with equal members, so that a torn one is noticed.
TEST(Recorder, ShowsNoTornRecordToAReaderBesideTheWriter) {
  TraceMemory memory(64);
  const TraceMemory::Ring ring = memory.take({}, 0, 1);
  Recorder recorder(memory, {}, 0, 1);
  const fs::path path = fs::path(testing::TempDir()) / fmt::format("torn.{}", getpid());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (std::uint64_t number = 1; !stop; ++number) recorder.begin(entry(number), number, number);
  });
  std::uint64_t valid = 0;
  for (int dump = 0; dump < 200 || valid == 0; ++dump) {
    memory.dump(path);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    std::vector<Record> copy(64);
    EXPECT_GE(pread(file, copy.data(), 64 * sizeof(Record),
                    static_cast<off_t>(extent_offset(1, 64) + kRingHeadBytes)),
              0);
    close(file);
    for (const Record& each : copy) {
      ReadRecord record;
      if (!read(each, record)) continue;
      ++valid;
      EXPECT_EQ(record.count, record.number);
      EXPECT_EQ(record.began, record.number);
      EXPECT_EQ(record.sequence, record.number);
    }
  }
  stop = true;
  writer.join();
  memory.give_back(ring);
  fs::remove(path);
}

TEST(Recorder, TellsCommunicatorsApartAndUsesTheRingOfOneThatEndedAgain) {
  TraceMemory memory(64);
  Recorder first(memory, {1, "first"}, 0, 2);
  {
    Recorder second(memory, {2, "second"}, 1, 2);
    second.begin(entry(5), 5, ticks());
    first.begin(entry(6), 6, ticks());
    EXPECT_EQ(numbers_of(records_of(memory, 0)), (std::vector<std::uint64_t>{6}));
    EXPECT_EQ(numbers_of(records_of(memory, 1)), (std::vector<std::uint64_t>{5}));
  }
  EXPECT_EQ(numbers_of(records_of(memory, 1)), (std::vector<std::uint64_t>{5}));
  Recorder third(memory, {3, "third"}, 0, 2);
  EXPECT_TRUE(records_of(memory, 1).empty());
  EXPECT_EQ(fs::file_size(fmt::format("/proc/self/fd/{}", memory.fd())),
            extent_offset(2, memory.capacity()));
}

TEST(Recorder, IsNotChangedByAForkedChild) {
  TraceMemory memory(64);
  auto recorder = std::make_unique<Recorder>(memory, RecordedName{1, "parent's"}, 0, 2);
  const pid_t child = fork();
  if (child == 0) {
    recorder.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  RingState state{};
  ASSERT_EQ(pread(memory.fd(), &state, sizeof state,
                  static_cast<off_t>(kTraceHeadBytes + offsetof(RingHead, state))),
            static_cast<ssize_t>(sizeof state));
  EXPECT_EQ(state, RingState::open);
}

TEST(Recorder, DumpsIntoNoFolderThatIsMissing) {
  const TraceMemory memory(64);
  try {
    memory.dump("/proc/no such folder/trace");
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("no such folder"));
  }
}

// The calls of a communicator, as it fails: the folder holds one complete file.
TEST(Recorder, DumpsTheCallsOfACommunicatorThatFails) {
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("dumps.{}", getpid());
  fs::create_directory(folder);
  Config config;
  config.trace_dir = folder;
  auto ranks = Communicator::in_process(2, config);
  std::vector<float> values(2, 1);
  const CallOptions soon{.timeout = std::chrono::milliseconds(20)};
  EXPECT_THROW(ranks[0].all_reduce(std::span(values), Op::sum, soon), Error);
  std::vector<fs::path> files;
  for (const auto& each : fs::directory_iterator(folder)) files.push_back(each.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].extension(), ".tuttitrace");
  std::ifstream file(files[0], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(bytes.size(), extent_offset(2, 4096));
  EXPECT_NE(bytes.find("rank 1 has not called it"), std::string::npos);
  fs::remove_all(folder);
}

TEST(Recorder, DumpsManyCommunicatorsThatFailAtOnceTogether) {
  constexpr int kCommunicators = 20;
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("many.{}", getpid());
  fs::create_directory(folder);
  std::atomic<int> dumps = 0;
  {
    Config config;
    config.trace_dir = folder;
    config.log_level = LogLevel::info;
    config.log_sink = [&](LogLevel, std::string_view line) {
      if (line.find("the last operations are in") != std::string_view::npos) ++dumps;
    };
    auto first = std::move(Communicator::in_process(1, config).front());
    std::vector<Communicator> others;
    for (int i = 0; i < kCommunicators; ++i) others.push_back(first.dup());
    for (int i = 0; i < kCommunicators; ++i) others[i].abort(fmt::format("abort {} of many", i));
  }
  EXPECT_LT(dumps, kCommunicators / 2);
  std::string bytes;
  for (const auto& each : fs::directory_iterator(folder)) {
    std::ifstream file(each.path(), std::ios::binary);
    bytes.append(std::istreambuf_iterator<char>(file), {});
  }
  for (int i = 0; i < kCommunicators; ++i)
    EXPECT_NE(bytes.find(fmt::format("abort {} of many", i)), std::string::npos) << i;
  fs::remove_all(folder);
}

// Beyond the limit the kernel would end the process by a signal.
TEST(Recorder, IsNotDumpedBeyondTheLimitOnTheSizeOfFiles) {
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("limited.{}", getpid());
  fs::create_directory(folder);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{8192, 8192};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::string said;
    {
      Config config;
      config.trace_dir = folder;
      config.log_sink = [&](LogLevel, std::string_view line) { said += line; };
      auto ranks = Communicator::in_process(2, config);
      ranks[0].barrier_async();
      ranks[0].abort("to be dumped");
    }
    _exit(said.find("were not dumped") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove_all(folder);
}

// The limit may be set once there is a communicator.
TEST(Recorder, IsNotShownBeyondALimitThatIsSetLater) {
  const pid_t child = fork();
  if (child == 0) {
    auto ranks = Communicator::in_process(1);
    const rlimit limit{8192, 8192};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      Communicator copy = ranks[0].dup();
      copy.barrier();
    } catch (const Error&) {
      _exit(1);
    }
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A transfer may have the position and the number that the first collective would have.
TEST(Recorder, DoesNotTakeATransferForACollective) {
  TraceMemory memory(64);
  Recorder recorder(memory, {}, 0, 2);
  recorder.begin_transfer({Record::kSend, DataType::f32, 1, 1, 0}, 0);
  EXPECT_FALSE(recorder.has(0));
  recorder.fail(ErrorKind::timeout);
  EXPECT_EQ(records_of(memory)[0].ended, Record::kUnderWay);
}

void own_handler(int) {}

TEST(Recorder, LeavesTheProgramItsOwnSignalHandler) {
  struct sigaction own {
  }, before{}, after{};
  own.sa_handler = own_handler;
  ASSERT_EQ(sigaction(SIGUSR1, &own, &before), 0);
  std::string said;
  Config config;
  config.trace_dir = testing::TempDir();
  config.trace_signal = "USR1";
  config.log_sink = [&](LogLevel, std::string_view line) { said += line; };
  Communicator::in_process(1, config);
  ASSERT_EQ(sigaction(SIGUSR1, &before, &after), 0);
  EXPECT_EQ(after.sa_handler, own_handler);
  EXPECT_THAT(said, HasSubstr("the program handles SIGUSR1 itself"));
}

TEST(Recorder, NeedsAFolderForASignal) {
  Config config;
  config.trace_signal = "USR1";
  EXPECT_THROW(Communicator::in_process(1, config), Error);
}

TEST(Recorder, RecordsTheCallsOfACommunicator) {
  auto ranks = Communicator::in_process(1);
  std::vector<float> values(2, 1), more(1000, 1);
  ranks[0].all_reduce(std::span(values));
  ranks[0].all_reduce_async(std::span(values)).wait();
  ranks[0].all_reduce(std::span(more), Op::max);
  ranks[0].barrier();
  const auto records = records_of(CommunicatorImpl::of(ranks[0]).parts().runtime->trace_memory());
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(numbers_of(records), (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(records[0].ended, Record::kSoon);
  EXPECT_EQ(records[0].more, 0u);
  EXPECT_GE(records[1].ended, records[1].began);
  EXPECT_GE(records[2].ended, records[2].began);
  EXPECT_EQ(records[2].count, 1000u);
  EXPECT_EQ(records[3].kinds & 0xff, static_cast<std::uint64_t>(Collective::barrier));
  for (std::size_t i = 1; i < records.size(); ++i)
    EXPECT_GE(records[i].began, records[i - 1].began);
}

TEST(Recorder, RecordsSendsAndReceives) {
  auto ranks = Communicator::in_process(2);
  int sent = 5, got = 0;
  auto work = ranks[1].recv_async(std::span(&got, 1), 0, 7);
  ranks[0].send(std::span(&sent, 1), 1, 7);
  work.wait();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto records =
        records_of(CommunicatorImpl::of(ranks[0]).parts().runtime->trace_memory(), rank);
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].kinds & 0xff, rank == 0 ? Record::kSend : Record::kReceive);
    EXPECT_EQ(records[0].kinds >> 32, 7u);
    EXPECT_EQ(records[0].peer, rank == 0 ? 1 : 0);
    EXPECT_NE(records[0].ended, Record::kUnderWay);
    EXPECT_EQ(records[0].outcome, Record::kGood);
  }
}

// Two receives wait, of which one is served at last and an abort ends the other.
TEST(Recorder, RecordsASendOrReceiveThatWaits) {
  auto ranks = Communicator::in_process(2);
  int sent = 5, got = 0, more = 0;
  auto work = ranks[1].recv_async(std::span(&got, 1), 0, 7);
  auto second = ranks[1].recv_async(std::span(&more, 1), 0, 8);
  const TraceMemory& memory = CommunicatorImpl::of(ranks[1]).parts().runtime->trace_memory();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (records_of(memory, 1).size() < 2 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  auto records = records_of(memory, 1);
  ASSERT_EQ(records.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(records[i].kinds >> 32, 7 + i);
    EXPECT_EQ(records[i].number, i);
    EXPECT_EQ(records[i].ended, Record::kUnderWay);
  }
  ranks[0].send(std::span(&sent, 1), 1, 7);
  work.wait();
  ranks[0].abort("a test");
  EXPECT_THROW(second.wait(), Error);
  records = records_of(memory, 1);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_GE(records[0].ended, records[0].began);
  EXPECT_EQ(records[0].outcome, Record::kGood);
  EXPECT_EQ(records[1].outcome, Record::kAbandoned);
}

// The send of a group is recorded once it has ended, although the group's receive still waits.
TEST(Recorder, RecordsASendOfAGroupThatWaitsForARest) {
  auto ranks = Communicator::in_process(2);
  int sent = 5, got = 0;
  const TraceMemory& memory = CommunicatorImpl::of(ranks[0]).parts().runtime->trace_memory();
  std::thread group([&] {
    Group both;
    CallOptions in_group;
    in_group.group = &both;
    ranks[0].send(std::span(&sent, 1), 1, 7, in_group);
    ranks[0].recv(std::span(&got, 1), 1, 8, in_group);
    both.end();
  });
  ranks[1].recv(std::span(&got, 1), 0, 7);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (records_of(memory, 0).size() < 2 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  std::map<std::uint64_t, std::uint64_t> ends;
  for (const ReadRecord& each : records_of(memory, 0)) ends[each.kinds & 0xff] = each.ended;
  ranks[1].send(std::span(&sent, 1), 0, 8);
  group.join();
  EXPECT_EQ(ends[Record::kSend], Record::kSoon);
  EXPECT_EQ(ends[Record::kReceive], Record::kUnderWay);
  EXPECT_EQ(records_of(memory, 0).size(), 2u);
}

// A callback keeps the engine while the program calls the next send.
TEST(Recorder, SaysHowLongAShortSendWasQueued) {
  auto ranks = Communicator::in_process(2);
  std::array<int, 3> sent{1, 2, 3}, got{};
  std::atomic<bool> called{false};
  for (int tag = 0; tag < 3; ++tag) ranks[1].recv_async(std::span(&got[tag], 1), 0, tag);
  Work first = ranks[0].send_async(std::span(&sent[0], 1), 1, 0);
  first.then([&](const Error*) {
    while (!called) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  Work second = ranks[0].send_async(std::span(&sent[1], 1), 1, 1);
  called = true;
  second.wait();
  const auto records =
      records_of(CommunicatorImpl::of(ranks[0]).parts().runtime->trace_memory(), 0);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(records[1].ended, Record::kSoon);
  EXPECT_GT(records[1].more, 0u);
}

TEST(Recorder, WritesNoWaitIntoTheRecordOfAnother) {
  TraceMemory memory(64);
  Recorder recorder(memory, {}, 0, 3);
  recorder.begin(entry(1), 0, ticks());
  for (int i = 0; i < 64; ++i)
    recorder.begin_transfer({Record::kReceive, DataType::uint8, 1, 2, i}, 0);
  recorder.waits(1, TimePoint{});
  recorder.queued(1);
  for (const ReadRecord& each : records_of(memory)) {
    EXPECT_EQ(each.kinds & 0xff, Record::kReceive);
    EXPECT_EQ(each.waits_for, -1);
    EXPECT_EQ(each.more, 0u);
  }
}

// A receive of another type than what has arrived fails at its first look, before it is recorded.
TEST(Recorder, RecordsAReceiveThatFailsAtOnce) {
  for (const bool blocking : {true, false}) {
    auto ranks = Communicator::in_process(2);
    int sent = 5;
    double got = 0;
    ranks[0].send(std::span(&sent, 1), 1, 7);
    if (blocking)
      EXPECT_THROW(ranks[1].recv(std::span(&got, 1), 0, 7), Error);
    else
      EXPECT_THROW(ranks[1].recv_async(std::span(&got, 1), 0, 7).wait(), Error);
    const auto records =
        records_of(CommunicatorImpl::of(ranks[1]).parts().runtime->trace_memory(), 1);
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].kinds & 0xff, Record::kReceive);
    EXPECT_EQ(records[0].outcome, Record::kAbandoned);
    EXPECT_GE(records[0].ended, records[0].began);
  }
}

TEST(Recorder, KeepsShortSendsAndReceivesInARecordForEachDirection) {
  auto ranks = Communicator::in_process(2);
  int sent = 5, got = 0;
  constexpr int kTurns = 100;
  for (int turn = 0; turn < kTurns; ++turn) {
    ranks[0].send(std::span(&sent, 1), 1, 7);
    ranks[0].send(std::span(&sent, 1), 0, 7);
    ranks[0].recv(std::span(&got, 1), 0, 7);
    ranks[1].recv(std::span(&got, 1), 0, 7);
  }
  const TraceMemory& memory = CommunicatorImpl::of(ranks[0]).parts().runtime->trace_memory();
  const auto all = records_of(memory, 1);
  ASSERT_EQ(all.size(), 2u);  // 64 and 36 receives
  EXPECT_EQ(all[0].more, Record::kMore);
  EXPECT_EQ(all[1].number, 1 + Record::kMore);
  EXPECT_EQ(all[0].more + all[1].more + 2, static_cast<std::uint32_t>(kTurns));
  const auto mixed = records_of(memory, 0);
  EXPECT_EQ(mixed.size(), 300u);  // each send goes to another rank than that before
}

}  // namespace
}  // namespace tutti::test
