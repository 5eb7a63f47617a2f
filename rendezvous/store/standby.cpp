#include "rendezvous/store/standby.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "common/thread.h"
#include "rendezvous/store/join.h"
#include "rendezvous/store/server_loop.h"

namespace tutti::rendezvous {
namespace {

// The primary appoints another rank after a longer time than this.
constexpr std::chrono::seconds kJoinLimit{3};
constexpr int kPauseMs = 20;  // between two attempts

}  // namespace

Standby::Standby(Way way, std::string primary)
    : way_(std::move(way)),
      primary_(std::move(primary)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = start_without_signals([this] {
    try {
      run();
    } catch (const std::exception&) {  // The primary appoints another rank.
    }
    over_ = true;
  });
}

Standby::~Standby() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

// Returns none if it cannot reach the primary in time, or is stopped.
std::optional<Joined> Standby::join(Route& route) const {
  const auto deadline = std::chrono::steady_clock::now() + kJoinLimit;
  for (std::string obstacle;;) {
    bool answered = false;
    auto joined = try_to_join(route, way_.job, way_.rank, way_.applying(kStandsBy), deadline,
                              obstacle, answered);
    if (joined) return joined;
    pollfd stopped{stop_.get(), POLLIN, 0};
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    if (poll(&stopped, 1, kPauseMs) != 0) return std::nullopt;
  }
}

void Standby::run() {
  SystemRandom random;
  OpenedPlace place = open_place(way_, random);
  const std::unique_ptr<Route> route = route_to(way_, primary_, random);
  if (route == nullptr || !stop_) return;
  std::optional<Joined> primary = join(*route);
  if (!primary) return;
  Standing standing;
  standing.address = std::move(place.address);
  standing.rank = way_.rank;
  standing.primary = std::move(primary);
  standing.public_place = public_place(way_);
  ServerLoop loop(way_.job, std::move(place.listeners), {}, stop_.get(), std::move(standing));
  loop.run();
}

}  // namespace tutti::rendezvous
