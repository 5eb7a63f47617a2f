// Looks at the ports that a ticket's store opens.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/store.hpp>

#include "../runtime/processes.h"
#include "test_job.h"

namespace tutti {
namespace {

bool is_open_to_others(int fd) {
  int listens = 0;
  socklen_t bytes = sizeof listens;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0)
    return false;
  sockaddr_storage where{};
  bytes = sizeof where;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&where), &bytes) != 0) return false;
  if (where.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(where).sin_addr.s_addr) >> 24 != 127;
  if (where.ss_family == AF_INET6)
    return !IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(where).sin6_addr);
  return false;
}

TEST(StoreTicket, OfTheLoopbackInterfaceOpensNoPortToOthersWhereAnotherStandsBy) {
  int ticket_pipe[2];
  ASSERT_EQ(pipe(ticket_pipe), 0);
  Config config;
  config.interfaces = "lo";
  test::Processes processes(2, [&](int number) {
    std::string ticket(kMaxTicketBytes, '\0');
    if (number == 0) {
      ticket = serve_store(config);
      const auto store = connect_store(ticket, in_time(), config);
      static_cast<void>(!write(ticket_pipe[1], ticket.data(), ticket.size()));
      store->wait("over", in_time());
      return;
    }
    ticket.resize(static_cast<std::size_t>(read(ticket_pipe[0], ticket.data(), ticket.size())));
    const auto store = connect_store(ticket, in_time(), config);
    store->set("key", "value", in_time());
    store->wait("tutti/standby/newcomer", in_time());
    std::vector<int> descriptors;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      descriptors.push_back(std::stoi(entry.path().filename()));
    bool open_to_others = false;
    for (const int fd : descriptors) open_to_others |= is_open_to_others(fd);
    store->set("over", "", in_time());
    if (open_to_others) throw std::runtime_error("a port is open to other machines");
  });
  EXPECT_EQ(processes.outcome(0), "");
  EXPECT_EQ(processes.outcome(1), "");
}

}  // namespace
}  // namespace tutti
