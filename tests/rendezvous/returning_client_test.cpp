// A client whose server ends goes to the next one, and may give up on the way.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../net/slow_path.h"
#include "net/tcp_socket.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/server_loop.h"
#include "rendezvous/store/way.h"
#include "test_job.h"

namespace tutti {
namespace {

using rendezvous::ServerLoop;
using rendezvous::Standing;

/// Runs a server in a thread. It ends at once, without lingering, as that of a killed process does.
class Served {
 public:
  Served(const JobAddress& job, std::vector<Listener> listeners, Standing standing) {
    ServerLimits limits;
    limits.linger = milliseconds(0);
    loop_ = std::make_unique<ServerLoop>(job, std::move(listeners), limits, stop_.get(),
                                         std::move(standing));
    thread_ = std::thread([this] {
      loop_->run();
      loop_.reset();  // closes all sockets
    });
  }
  ~Served() { end(); }
  void end() {
    if (!thread_.joinable()) return;
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }

 private:
  const Fd stop_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::unique_ptr<ServerLoop> loop_;
  std::thread thread_;
};

TEST(AReturningClient, ThatGaveUpBeforeTheNextServersAnswerCameIsLetInLater) {
  const JobAddress job = job_of(3);
  const Secret secret("what only this test knows");
  Standing first_standing;
  first_standing.address = "0\n";
  Served first(job, at_unix_socket(job), std::move(first_standing));

  // The successor listens by TCP, 200 ms away from its client, and stands by for the first.
  std::vector<Listener> listeners;
  listeners.push_back({net::listen_tcp({"127.0.0.1", 0}), secret, false});
  const test::SlowPath path(net::port_of(listeners.front().socket), milliseconds(200));
  Standing standing;
  standing.address = fmt::format("0\n127.0.0.1:{}\n", path.port());
  standing.rank = 1;
  std::string obstacle;
  bool answered = false;
  standing.primary =
      rendezvous::try_to_join(*rendezvous::local_route(job, 1), job, 1, {rendezvous::kStandsBy, 7},
                              in_time(), obstacle, answered);
  ASSERT_TRUE(standing.primary) << obstacle;
  Served second(job, std::move(listeners), std::move(standing));

  rendezvous::Way way{job, 2, 900, false, true};
  way.secret = secret;
  Log log(LogLevel::error, {});
  const auto route = rendezvous::local_route(job, 2);
  auto joined =
      rendezvous::join_store(*route, job, 2, in_time(), log, way.applying(rendezvous::kMayStandBy));
  const auto store =
      std::make_shared<SocketStore>(std::move(joined), 2, nullptr, nullptr, std::move(way));
  store->wait(std::string(rendezvous::kStandbyKey) + "1", in_time());  // It knows the successor.
  first.end();

  // Hello, challenge, proof and result take 800 ms; the greeting is sent then, and arrives at
  // 1000 ms; the answer would come at 1200 ms.
  EXPECT_EQ(error_of([&] { store->set("key", "value", in(milliseconds(1000))); }).kind(),
            ErrorKind::timeout);
  EXPECT_NO_THROW(store->set("key", "value", in(seconds(20))));
}

}  // namespace
}  // namespace tutti
