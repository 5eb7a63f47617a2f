#include "rendezvous/store/store_server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <cerrno>
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

std::vector<Listener> unix_listener(const JobAddress& job) {
  std::vector<Listener> listeners;
  listeners.push_back({rendezvous::listen_at(job.socket_name()), std::nullopt});
  return listeners;
}

}  // namespace

class StoreServer::Running {
 public:
  Running(const JobAddress& job, std::vector<Listener> listeners, const ServerLimits& limits)
      : stop_(stop_event()),
        loop_(std::make_unique<rendezvous::ServerLoop>(job, std::move(listeners), limits,
                                                       stop_.get())) {
    thread_ = start_without_signals([this] {
      try {
        loop_->run();
      } catch (const std::exception&) {
        // The kernel or memory has run out. The sockets close, and every rank sees `peer_lost`.
      }
      loop_.reset();
    });
  }
  ~Running() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }

 private:
  const Fd stop_;
  std::unique_ptr<rendezvous::ServerLoop> loop_;  // own thread only, once that runs
  std::thread thread_;
};

StoreServer::StoreServer(const JobAddress& job, const ServerLimits& limits)
    : StoreServer(job, unix_listener(job), limits) {}

StoreServer::StoreServer(const JobAddress& job, std::vector<Listener> listeners,
                         const ServerLimits& limits)
    : running_("the store's server", job, std::move(listeners), limits) {}

StoreServer::~StoreServer() = default;

}  // namespace tutti
