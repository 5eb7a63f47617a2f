// Collectives, sends and receives on host buffers, as programs of NCCL call them.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "ranks.h"

namespace tutti::test {
namespace {

constexpr std::size_t kCount = 1000;

template <typename T>
std::vector<T> filled(std::size_t count, int first) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>((static_cast<int>(i) + first) % 5);
  return values;
}

// Reduces element `i` of what each rank has from filled().
template <typename T>
T reduced(ncclRedOp_t op, std::size_t i, int size) {
  T result{};
  for (int rank = 0; rank < size; ++rank) {
    const T value = static_cast<T>((static_cast<int>(i) + rank) % 5);
    if (rank == 0)
      result = value;
    else if (op == ncclSum)
      result = static_cast<T>(result + value);
    else if (op == ncclProd)
      result = static_cast<T>(result * value);
    else if (op == ncclMax)
      result = std::max(result, value);
    else
      result = std::min(result, value);
  }
  return result;
}

template <typename T>
void reduce_all(ncclComm_t comm, int rank, int size, ncclDataType_t type) {
  for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin}) {
    const auto input = filled<T>(kCount, rank);
    std::vector<T> wanted(kCount), output(kCount);
    for (std::size_t i = 0; i < kCount; ++i) wanted[i] = reduced<T>(op, i, size);
    CHECK_NCCL(ncclAllReduce(input.data(), output.data(), kCount, type, op, comm, nullptr));
    expect_equal(output, wanted, "all-reduce");
    auto in_place = input;
    CHECK_NCCL(ncclAllReduce(in_place.data(), in_place.data(), kCount, type, op, comm, nullptr));
    expect_equal(in_place, wanted, "all-reduce in place");
    const int root = size - 1;
    CHECK_NCCL(ncclReduce(input.data(), rank == root ? output.data() : nullptr, kCount, type, op,
                          root, comm, nullptr));
    expect_equal(output, wanted, "reduce");
    const std::size_t block = kCount / static_cast<std::size_t>(size);
    std::vector<T> part(block);
    CHECK_NCCL(ncclReduceScatter(input.data(), part.data(), block, type, op, comm, nullptr));
    const auto begin = wanted.begin() + static_cast<std::ptrdiff_t>(block) * rank;
    expect_equal(part, std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(block)),
                 "reduce-scatter");
  }
}

void reduce_all_types(ncclComm_t comm, int rank, int size) {
  reduce_all<std::int8_t>(comm, rank, size, ncclInt8);
  reduce_all<std::uint8_t>(comm, rank, size, ncclUint8);
  reduce_all<std::int32_t>(comm, rank, size, ncclInt32);
  reduce_all<std::uint32_t>(comm, rank, size, ncclUint32);
  reduce_all<std::int64_t>(comm, rank, size, ncclInt64);
  reduce_all<std::uint64_t>(comm, rank, size, ncclUint64);
  reduce_all<float>(comm, rank, size, ncclFloat32);
  reduce_all<double>(comm, rank, size, ncclFloat64);
}

// These are the bits of 1, 2 and 3 in the small floats: a sum of two ranks that hold 1 and 2 is 3.
void reduce_small_floats(ncclComm_t comm, int rank, int size) {
  struct Bits {
    ncclDataType_t type;
    std::size_t bytes;
    std::array<std::uint16_t, 3> one_two_three;
  };
  expect_equal(size, 2, "the number of ranks");
  for (const Bits& bits :
       {Bits{ncclFloat16, 2, {0x3c00, 0x4000, 0x4200}},
        Bits{ncclBfloat16, 2, {0x3f80, 0x4000, 0x4040}},
        Bits{ncclFloat8e4m3, 1, {0x38, 0x40, 0x44}}, Bits{ncclFloat8e5m2, 1, {0x3c, 0x40, 0x42}}}) {
    std::uint16_t input = bits.one_two_three[static_cast<std::size_t>(rank)], output = 0;
    CHECK_NCCL(ncclAllReduce(&input, &output, 1, bits.type, ncclSum, comm, nullptr));
    expect_equal(output, bits.one_two_three[2], "the sum of type " + std::to_string(bits.type));
  }
}

void move_blocks(ncclComm_t comm, int rank, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  const std::vector<int> own(kCount, rank);
  std::vector<int> all(kCount * ranks, -1), wanted(kCount * ranks);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<int>(i / kCount);
  CHECK_NCCL(ncclAllGather(own.data(), all.data(), kCount, ncclInt32, comm, nullptr));
  expect_equal(all, wanted, "all-gather");
  std::fill(all.begin(), all.end(), -1);
  CHECK_NCCL(ncclGather(own.data(), rank == 1 ? all.data() : nullptr, kCount, ncclInt32, 1, comm,
                        nullptr));
  expect_equal(all, rank == 1 ? wanted : std::vector<int>(wanted.size(), -1), "gather");
  std::vector<int> block(kCount);
  CHECK_NCCL(ncclScatter(rank == 1 ? wanted.data() : nullptr, block.data(), kCount, ncclInt32, 1,
                         comm, nullptr));
  expect_equal(block, own, "scatter");
  CHECK_NCCL(ncclAlltoAll(wanted.data(), all.data(), kCount, ncclInt32, comm, nullptr));
  expect_equal(all, std::vector<int>(wanted.size(), rank), "all-to-all");
  std::fill(block.begin(), block.end(), -1);
  CHECK_NCCL(ncclBroadcast(own.data(), block.data(), kCount, ncclInt32, 1, comm, nullptr));
  expect_equal(block, std::vector<int>(kCount, 1), "broadcast");
  expect_equal(own, std::vector<int>(kCount, rank), "the input of broadcast");
  auto in_place = own;
  CHECK_NCCL(ncclBcast(in_place.data(), kCount, ncclInt32, 0, comm, nullptr));
  expect_equal(in_place, std::vector<int>(kCount, 0), "broadcast in place");
}

void exchange(ncclComm_t comm, int rank, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
    std::vector<std::vector<int>> sent, got(ranks, std::vector<int>(count, -1));
    for (int peer = 0; peer < size; ++peer) sent.emplace_back(count, 100 * rank + peer);
    CHECK_NCCL(ncclGroupStart());
    for (int peer = 0; peer < size; ++peer) {  // The rank itself is one of them.
      const auto p = static_cast<std::size_t>(peer);
      CHECK_NCCL(ncclSend(sent[p].data(), count, ncclInt32, peer, comm, nullptr));
      CHECK_NCCL(ncclRecv(got[p].data(), count, ncclInt32, peer, comm, nullptr));
    }
    CHECK_NCCL(ncclGroupEnd());
    for (int peer = 0; peer < size; ++peer)
      expect_equal(got[static_cast<std::size_t>(peer)], std::vector<int>(count, 100 * peer + rank),
                   "a message");
  }
  int token = rank == 0 ? 7 : 0;
  if (rank > 0) CHECK_NCCL(ncclRecv(&token, 1, ncclInt32, rank - 1, comm, nullptr));
  if (rank + 1 < size) CHECK_NCCL(ncclSend(&token, 1, ncclInt32, rank + 1, comm, nullptr));
  expect_equal(token, 7, "what went from rank to rank");
}

void premultiply(ncclComm_t comm, int rank, int size) {
  const float factor = static_cast<float>(rank + 1);
  float scalar = factor;
  ncclRedOp_t at_once{}, later{};
  CHECK_NCCL(
      ncclRedOpCreatePreMulSum(&at_once, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
  CHECK_NCCL(ncclRedOpCreatePreMulSum(&later, &scalar, ncclFloat32, ncclScalarDevice, comm));
  expect_equal(at_once == later, false, "whether two reductions are the same");
  scalar = 10 * factor;
  const float input = 2;
  float output = 0;
  const auto all = static_cast<float>(size * (size + 1) / 2);
  CHECK_NCCL(ncclAllReduce(&input, &output, 1, ncclFloat32, at_once, comm, nullptr));
  expect_equal(output, 2 * all, "a premultiplied sum");
  CHECK_NCCL(ncclAllReduce(&input, &output, 1, ncclFloat32, later, comm, nullptr));
  expect_equal(output, 20 * all, "a premultiplied sum by what the scalar is at the call");
  CHECK_NCCL(ncclRedOpDestroy(at_once, comm));
  expect_equal(ncclAllReduce(&input, &output, 1, ncclFloat32, at_once, comm, nullptr),
               ncclInvalidArgument, "a call with a reduction that was destroyed");
  expect_equal(ncclAllReduce(&input, &output, 1, ncclInt32, later, comm, nullptr),
               ncclInvalidArgument, "a call with a reduction of another type");
  CHECK_NCCL(ncclRedOpDestroy(later, comm));
}

void average(ncclComm_t comm, int rank, int size) {
  const double input = rank;
  double output = -1;
  CHECK_NCCL(ncclAllReduce(&input, &output, 1, ncclFloat64, ncclAvg, comm, nullptr));
  expect_equal(output, (size - 1) / 2.0, "an average");
}

TEST(NcclCollectives, EveryTypeAndReductionGivesTheExactResultBetweenProcesses) {
  in_processes(3, reduce_all_types);
}
TEST(NcclCollectives, EveryTypeAndReductionGivesTheExactResultBetweenThreads) {
  in_threads(4, reduce_all_types);
}
TEST(NcclCollectives, FloatsOf16And8BitsAreSummed) { in_processes(2, reduce_small_floats); }
TEST(NcclCollectives, BlocksGoWhereTheCallSays) { in_processes(3, move_blocks); }
TEST(NcclCollectives, BlocksGoWhereTheCallSaysBetweenThreads) { in_threads(2, move_blocks); }
TEST(NcclCollectives, MessagesOfAGroupCrossEachOther) { in_processes(3, exchange); }
TEST(NcclCollectives, MessagesOfAGroupCrossEachOtherBetweenThreads) { in_threads(3, exchange); }
TEST(NcclCollectives, PremultipliedSumsReadTheirScalarWhenTheResidenceSays) {
  in_processes(2, premultiply);
}
TEST(NcclCollectives, AnAverageIsDividedByTheNumberOfRanks) { in_processes(3, average); }

TEST(NcclCollectives, OneThreadDrivesAllRanksInAGroup) {
  InOneThread ranks(3);
  std::vector<std::vector<float>> data(3, std::vector<float>(100'000, 1));
  for (int repeat = 0; repeat < 5; ++repeat) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (std::size_t r = 0; r < 3; ++r) {
      ASSERT_EQ(ncclAllReduce(data[r].data(), data[r].data(), data[r].size(), ncclFloat32, ncclSum,
                              ranks.comms[r], nullptr),
                ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  }
  for (const auto& each : data) EXPECT_EQ(each, std::vector<float>(each.size(), 243));
}

// The calls that come later end first: they are messages of a rank to itself.
TEST(NcclCollectives, AllCallsThatDoNotBlockCountForTheAsynchronousError) {
  SharedId id, looked;
  Processes ranks(2, [&](int rank) {
    ncclConfig_t config;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    expect_equal(ncclCommInitRankConfig(&comm, 2, id.of_rank(rank), rank, &config), ncclInProgress,
                 "the start");
    ncclResult_t state = ncclInProgress;
    const auto look = [&] {
      CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
      usleep(100);
      return state;
    };
    while (look() == ncclInProgress) {
    }
    int of_other = 0, of_self = 0, value = rank + 1;
    if (rank == 1) {
      looked.get();
      ncclSend(&value, 1, ncclInt32, 0, comm, nullptr);
    } else {
      ncclRecv(&of_other, 1, ncclInt32, 1, comm, nullptr);
      ncclSend(&value, 1, ncclInt32, 0, comm, nullptr);
      ncclRecv(&of_self, 1, ncclInt32, 0, comm, nullptr);
      for (int i = 0; i < 200; ++i) expect_equal(look(), ncclInProgress, "the state");
      looked.set({});
    }
    while (look() == ncclInProgress) {
    }
    expect_equal(state, ncclSuccess, "the state at the end");
    if (rank == 0) expect_equal(of_other + of_self, 3, "what was received");
    CHECK_NCCL(ncclCommDestroy(comm));
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.outcome(rank), "") << "rank " << rank;
}

}  // namespace
}  // namespace tutti::test
