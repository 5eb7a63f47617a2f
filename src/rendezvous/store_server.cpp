#include "rendezvous/store_server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>

#include <tutti/error.hpp>

#include "rendezvous/server_loop.h"

namespace tutti {
namespace {

Fd stop_event() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event)
    throw Error(ErrorKind::unavailable,
                fmt::format("the store gets no eventfd: {}", std::strerror(errno)));
  return event;
}

// The program's signal handlers run in the program's threads.
template <typename Function>
std::thread start_without_signals(Function function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::string why_not;
  try {
    thread = std::thread(std::move(function));
  } catch (const std::system_error& error) {
    why_not = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!thread.joinable())
    throw Error(ErrorKind::unavailable, fmt::format("the store gets no thread: {}", why_not));
  return thread;
}

}  // namespace

class StoreServer::Running {
 public:
  Running(const JobAddress& job, const ServerLimits& limits)
      : stop_(stop_event()),
        loop_(std::make_unique<rendezvous::ServerLoop>(job, limits, stop_.get())) {
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
    : running_("the store's server", job, limits) {}

StoreServer::~StoreServer() = default;

}  // namespace tutti
