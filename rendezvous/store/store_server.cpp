#include "rendezvous/store/store_server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include <tutti/error.hpp>

#include "common/thread.h"
#include "net/local_socket.h"
#include "rendezvous/store/server_loop.h"

namespace tutti {
namespace {

Fd stop_event() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event)
    throw Error(ErrorKind::unavailable,
                fmt::format("the store gets no eventfd: {}", std::strerror(errno)));
  return event;
}

rendezvous::Standing standing_at(std::string address) {
  rendezvous::Standing standing;
  standing.address = std::move(address);
  return standing;
}

void run(rendezvous::ServerLoop& loop) {
  try {
    loop.run();
  } catch (const std::exception&) {
    // Memory or kernel resources are exhausted. The sockets close and all ranks get `peer_lost`.
  }
}

bool has_ended(pid_t pid) { return pid != 0 && kill(pid, 0) != 0 && errno == ESRCH; }

[[noreturn]] void refuse_taken_name(const std::string& name) {
  const net::LocalConnecting probe = net::connect_local(name);
  const net::PeerProcess owner =
      probe.socket ? net::peer_of(probe.socket.get()) : net::PeerProcess{};
  if (owner.pid == getpid())
    throw Error(ErrorKind::usage,
                "this process hosts a store at this MASTER_PORT already: keep the communicator "
                "that it belongs to, or destroy it on all ranks before another is made");
  throw Error(
      ErrorKind::unavailable,
      fmt::format("MASTER_PORT is in use: {} hosts the store @{}{}; give each job a port of "
                  "its own, or end that process",
                  owner.describe(), name,
                  has_ended(owner.pid) ? " (it has ended, but not a child that it forked)" : ""));
}

}  // namespace

class StoreServer::Running {
 public:
  Running(const JobAddress& job, std::vector<Listener> listeners, const ServerLimits& limits,
          std::string address)
      : stop_(stop_event()),
        loop_(std::make_unique<rendezvous::ServerLoop>(
            job, std::move(listeners), limits, stop_.get(), standing_at(std::move(address)))) {
    thread_ = start_without_signals([this] {
      run(*loop_);
      loop_.reset();
    });
  }
  ~Running() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }

 private:
  const Fd stop_;
  std::unique_ptr<rendezvous::ServerLoop> loop_;  // used by thread_ only, once it runs
  std::thread thread_;
};

Listener unix_listener(const JobAddress& job) {
  Fd socket = net::listen_local(job.socket_name());
  if (!socket) refuse_taken_name(job.socket_name());
  return {std::move(socket), std::nullopt};
}

void serve_detached(const JobAddress& job, std::vector<Listener> listeners,
                    const ServerLimits& limits, std::string address) {
  struct Own {
    Fd stop = stop_event();  // Nobody writes it.
    std::unique_ptr<rendezvous::ServerLoop> loop;
  };
  auto own = std::make_shared<Own>();
  own->loop = std::make_unique<rendezvous::ServerLoop>(
      job, std::move(listeners), limits, own->stop.get(), standing_at(std::move(address)));
  start_without_signals([own = std::move(own)] { run(*own->loop); }).detach();
}

StoreServer::StoreServer(const JobAddress& job, std::vector<Listener> listeners,
                         const ServerLimits& limits, std::string address)
    : running_("the store's server", job, std::move(listeners), limits, std::move(address)) {}

StoreServer::~StoreServer() = default;

}  // namespace tutti
