// Tests who gets memory of GPUs that peers write, and when it is handed out again.
#include <gtest/gtest.h>

#include "devices/gpu_exports.h"
#include "runtime/engine/device/kernels.h"
#include "tests/kernels/gpu_buffers.h"

namespace tutti::test {
namespace {

using Peer = GpuExports::Peer;

constexpr int kOrdinal = 3;  // No other test of this program leaves it in use.

class Exports : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() <= kOrdinal) GTEST_SKIP() << "a GPU that no other test uses needs four GPUs";
  }
  /// Does something with the GPU while it is open and its context is current.
  template <typename Use>
  static auto with_gpu(Use&& use) {
    const auto gpu = GpuDevice::open(kOrdinal, false, device::kernels());
    const GpuDevice::Current current(*gpu);
    return use(*gpu);
  }
  static std::byte* take_and_give_back(Peer peer) {
    return with_gpu([&](const GpuDevice& gpu) {
      const auto piece = GpuExports::of_process().take(gpu, 1000, {0, 1});
      GpuExports::of_process().give_back(piece, peer);
      return piece.memory;
    });
  }
};

TEST_F(Exports, MemoryThatAnotherProcessHasMappedIsKeptForTheNextRing) {
  std::byte* const first = take_and_give_back(Peer::closed);
  EXPECT_EQ(take_and_give_back(Peer::closed), first);
}

TEST_F(Exports, MemoryOfAContextThatIsGoneIsNotHandedOut) {
  std::byte* const first = take_and_give_back(Peer::closed);
  // The memory that was mapped elsewhere has kept the context. The program resets the GPU.
  int active = 1;
  for (unsigned flags = 0; active != 0;) {
    cu("cuDevicePrimaryCtxRelease_v2", kOrdinal);
    cu("cuDevicePrimaryCtxGetState", kOrdinal, &flags, &active);
  }
  EXPECT_NE(take_and_give_back(Peer::closed), first);
}

TEST_F(Exports, APieceThatAPeerMayWriteIsNotHandedOutUntilItsLastWord) {
  with_gpu([](const GpuDevice& gpu) {
    GpuExports& exports = GpuExports::of_process();
    constexpr std::size_t kBytes = std::size_t{1} << 20;  // A block has room for one such piece.
    const auto left = exports.take(gpu, kBytes, {0, 1});
    exports.give_back(left, Peer::may_write);
    const auto second = exports.take(gpu, kBytes, {0, 1});
    EXPECT_NE(second.memory, left.memory);
    *reinterpret_cast<std::uint64_t*>(left.memory + left.bytes) = GpuExports::kClosed;
    const auto third = exports.take(gpu, kBytes, {0, 1});
    EXPECT_EQ(third.memory, left.memory);
    exports.give_back(second, Peer::never_mapped);
    exports.give_back(third, Peer::never_mapped);
    return 0;
  });
}

TEST_F(Exports, AWriterFindsTheRingBetweenItAndItsReaderAlone) {
  with_gpu([](const GpuDevice& gpu) {
    GpuExports& exports = GpuExports::of_process();
    const auto piece = exports.take(gpu, 1000, {.reader = 0, .writer = 1});
    EXPECT_FALSE(exports.find(piece.number, {.reader = 1, .writer = 0}));
    EXPECT_FALSE(exports.find(piece.number + 1, {.reader = 0, .writer = 1}));
    const auto found = exports.find(piece.number, {.reader = 0, .writer = 1});
    EXPECT_TRUE(found && found->memory == piece.memory);
    exports.give_back(piece, Peer::never_mapped);
    return 0;
  });
}

}  // namespace
}  // namespace tutti::test
