// A peer is lost or frozen while threads of another rank use several communicators that share the
// connections to it.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/interleaving/explore.h"
#include "tests/interleaving/world.h"

namespace tutti::interleaving {
namespace {

// Calls `use` with each socket of this type, less the standard streams.
void on_each_socket(int type, const std::function<void(int)>& use) {
  constexpr int kDescriptors = 1024;
  for (int fd = STDERR_FILENO + 1; fd < kDescriptors; ++fd) {
    int its_type = 0;
    socklen_t bytes = sizeof its_type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &its_type, &bytes) == 0 && its_type == type) use(fd);
  }
}

// The connection of two ranks ends without a goodbye, as where a process is killed, while two
// threads of rank 0 wait in two communicators. Whichever thread finds the end tells the other.
TEST(Loss, OverSharedMemoryIsHeardByThreadsInAllCommunicators) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 2, World::shm);
        std::vector<Member> second = duplicates(scheduler, first);
        const auto waits = [&](Member& member) {
          int value = 0;
          const auto kind = error_of([&] { member->recv(&value, 1, DataType::int32, 1, 0); });
          scheduler.check(kind == ErrorKind::peer_lost, "the receive did not end with the loss");
        };
        together({[&] { waits(first[0]); }, [&] { waits(second[0]); },
                  [&] {
                    on_each_socket(SOCK_SEQPACKET, [](int socket) { shutdown(socket, SHUT_RDWR); });
                  }});
      },
      400);
}

// Rank 2 is in a callback and reads nothing, and what the others send to it fills the buffers of
// their connections. That does not hold up their calls in a communicator without it.
TEST(Frozen, PeerOverTcpStallsNoCommunicatorThatItIsNotIn) {
  explore(
      [](Scheduler& scheduler) {
        constexpr std::size_t kMessageBytes = 256 << 10, kBytes = 8 * kMessageBytes;
        std::vector<Member> all = make_members(scheduler, 3, World::tcp, kMessageBytes);
        on_each_socket(SOCK_STREAM, [](int socket) {
          const int bytes = 64 << 10;
          setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        });
        std::array<Member, 3> parts;
        {
          const Scheduler::Calm calm(scheduler);
          on_each(all, [&](Communicator& each) {
            parts[each.rank()] = each.split(each.rank() == 2 ? 1 : 0);
          });
        }
        const auto ready = std::make_shared<Event>(), frozen = std::make_shared<Event>(),
                   thaws = std::make_shared<Event>();
        const auto freezes = [&](Communicator& each) {
          each.barrier_async().then([frozen, thaws](const Error*) {
            frozen->happen();
            thaws->wait();
          });
          ready->happen();
          thaws->wait();
        };
        on_each(all, [&](Communicator& each) {
          std::vector<std::uint8_t> own(kBytes), gathered(each.rank() == 2 ? 3 * kBytes : 0);
          if (each.rank() == 2) {
            freezes(each);
            return each.gather(own.data(), gathered.data(), kBytes, DataType::uint8, 2);
          }
          ready->wait();
          each.barrier();
          frozen->wait();
          Work work = each.gather_async(own.data(), nullptr, kBytes, DataType::uint8, 2);
          while (CommunicatorImpl::of(each).parts().transport->all_left()) sync::yield();
          check_sum(scheduler, *parts[each.rank()]);
          thaws->happen();
          work.wait();
        });
      },
      20);
}

}  // namespace
}  // namespace tutti::interleaving
