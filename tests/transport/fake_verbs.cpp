#include "fake_verbs.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include <tutti/error.hpp>

#include "common/fd.h"
#include "common/random.h"
#include "common/text.h"

namespace tutti::rdma::fake {
namespace {

constexpr const char* kFlushed = "Work Request Flushed Error";
constexpr const char* kUnanswered = "transport retry counter exceeded";
constexpr const char* kNotReady = "RNR retry counter exceeded";

}  // namespace

class FakePair;
struct FakeEvents {
  std::vector<void*> owners;
  Fd fd{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
};

struct Network::Inside {
  explicit Inside(std::uint64_t seed) : random(seed) {}

  std::mutex mutex;
  SeededRandom random;
  std::map<std::uint64_t, FakePair*> pairs;
  std::uint64_t last = 0, overruns = 0, registered = 0, most_registered = 0;
  std::uint64_t swallowed = 0, held = 0;
  bool is_cut = false, refuses = false;
};
using Inside = Network::Inside;

class FakeRegion final : public Region {
 public:
  FakeRegion(std::shared_ptr<Inside> network, std::size_t bytes)
      : network_(std::move(network)), bytes_(bytes) {
    const std::lock_guard lock(network_->mutex);
    network_->registered += bytes_;
    network_->most_registered = std::max(network_->most_registered, network_->registered);
  }
  ~FakeRegion() override {
    const std::lock_guard lock(network_->mutex);
    network_->registered -= bytes_;
  }
  std::uint32_t local_key() const noexcept override { return 17; }
  std::uint32_t remote_key() const noexcept override { return 18; }

 private:
  const std::shared_ptr<Inside> network_;
  const std::size_t bytes_;
};

/// Represents a queue pair. The network's lock guards all of them.
class FakePair final : public QueuePair {
 public:
  FakePair(std::shared_ptr<Inside> network, std::shared_ptr<FakeEvents> events,
           const QueueLimits& limits, void* owner)
      : network_(std::move(network)), events_(std::move(events)), limits_(limits), owner_(owner) {
    const std::lock_guard lock(network_->mutex);
    number_ = ++network_->last;
    network_->pairs[number_] = this;
  }
  ~FakePair() override {
    const std::lock_guard lock(network_->mutex);
    network_->pairs.erase(number_);
  }

  std::string address() const override { return std::to_string(number_); }
  void connect(std::string_view peer) override {
    const std::lock_guard lock(network_->mutex);
    if (network_->refuses) throw Error(ErrorKind::unavailable, "the fake network refuses");
    const auto number = parse_number<std::uint64_t>(peer);
    if (!number) throw Error(ErrorKind::unavailable, "this is no address of a fake queue pair");
    peer_ = *number;
  }
  std::unique_ptr<Region> add(std::byte*, std::size_t bytes, bool) override {
    return std::make_unique<FakeRegion>(network_, bytes);
  }

  bool send(std::uint32_t id, const Piece& piece) noexcept override {
    const std::lock_guard lock(network_->mutex);
    assert(sends_under_way_ < limits_.sends && "more sends than the queue has room for");
    ++sends_under_way_;
    const Completion done{Completion::What::sent, id, piece.bytes};
    if (failed_) return finish(done, kFlushed), true;
    if (network_->swallowed == number_) return true;
    const auto to = network_->pairs.find(peer_);
    if (network_->is_cut || to == network_->pairs.end() || to->second->failed_)
      return fail(done, kUnanswered), true;
    FakePair& peer = *to->second;
    if (peer.receives_.empty()) {
      ++network_->overruns;
      return fail(done, kNotReady), true;
    }
    const auto [its_id, place] = peer.receives_.front();
    peer.receives_.pop_front();
    assert(piece.bytes <= place.bytes);
    if (piece.bytes != 0) std::memcpy(place.data, piece.data, piece.bytes);
    peer.finish({Completion::What::received, its_id, piece.bytes}, nullptr);
    finish(done, nullptr);
    return true;
  }
  bool receive(std::uint32_t id, const Piece& piece) noexcept override {
    const std::lock_guard lock(network_->mutex);
    assert(receives_.size() < limits_.receives);
    if (failed_)
      finish({Completion::What::received, id, 0}, kFlushed);
    else
      receives_.emplace_back(id, piece);
    return true;
  }
  bool read(std::uint32_t, const Piece&, std::uint64_t, std::uint32_t) noexcept override {
    return false;
  }
  std::size_t poll(std::span<Completion> completions) noexcept override {
    const std::lock_guard lock(network_->mutex);
    std::size_t count = 0;
    // Each completion may be some polls late, and those of sends and of receives come in any order.
    while (count < completions.size() && has_finished() &&
           (armed_once_ || network_->random.next() % 4 != 0)) {
      const bool sent = is_next_sent();
      std::deque<Completion>& from = sent ? sent_ : received_;
      completions[count++] = from.front();
      if (sent) --sends_under_way_;
      from.pop_front();
    }
    return count;
  }
  void arm() noexcept override {
    const std::lock_guard lock(network_->mutex);
    armed_ = armed_once_ = true;
  }
  void stop() noexcept override {
    const std::lock_guard lock(network_->mutex);
    fail_all();
  }

 private:
  void finish(Completion completion, const char* error) {
    completion.error = error;
    (completion.what == Completion::What::received ? received_ : sent_).push_back(completion);
    if (!armed_) return;
    armed_ = false;
    events_->owners.push_back(owner_);
    eventfd_write(events_->fd.get(), 1);
  }
  bool has_sent() const { return !sent_.empty() && network_->held != number_; }
  bool has_finished() const { return has_sent() || !received_.empty(); }
  bool is_next_sent() const {
    // A failed request completes before those that are flushed because of it.
    return has_sent() && (failed_ || received_.empty() || network_->random.next() % 2 == 0);
  }
  void fail(const Completion& completion, const char* error) {
    finish(completion, error);
    fail_all();
  }
  void fail_all() {
    if (failed_) return;
    failed_ = true;
    for (const auto& [id, piece] : receives_) finish({Completion::What::received, id, 0}, kFlushed);
    receives_.clear();
  }

  const std::shared_ptr<Inside> network_;
  const std::shared_ptr<FakeEvents> events_;
  const QueueLimits limits_;
  void* const owner_;
  std::uint64_t number_ = 0, peer_ = 0;
  bool failed_ = false, armed_ = false;
  // Completions are late only until somebody sleeps: an event promises that they are there.
  bool armed_once_ = false;
  std::uint32_t sends_under_way_ = 0;
  std::deque<std::pair<std::uint32_t, Piece>> receives_;
  std::deque<Completion> sent_, received_;
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(std::shared_ptr<Inside> network) : network_(std::move(network)) {}

  std::unique_ptr<QueuePair> make(const QueueLimits& limits, void* owner) override {
    return std::make_unique<FakePair>(network_, events_, limits, owner);
  }
  int event_fd() const noexcept override { return events_->fd.get(); }
  void take_events(std::vector<void*>& owners) override {
    const std::lock_guard lock(network_->mutex);
    eventfd_t count = 0;
    static_cast<void>(eventfd_read(events_->fd.get(), &count));
    owners.insert(owners.end(), events_->owners.begin(), events_->owners.end());
    events_->owners.clear();
  }

 private:
  const std::shared_ptr<Inside> network_;
  const std::shared_ptr<FakeEvents> events_ = std::make_shared<FakeEvents>();
};

Network::Network(std::uint64_t seed) : inside_(std::make_shared<Inside>(seed)) {}
Network::~Network() = default;

std::shared_ptr<Device> Network::make_device() { return std::make_shared<FakeDevice>(inside_); }

void Network::cut() {
  const std::lock_guard lock(inside_->mutex);
  inside_->is_cut = true;
}
void Network::swallow(std::uint64_t pair) {
  const std::lock_guard lock(inside_->mutex);
  inside_->swallowed = pair;
}
void Network::hold_acknowledgements(std::uint64_t pair) {
  const std::lock_guard lock(inside_->mutex);
  inside_->held = pair;
}
void Network::refuse() {
  const std::lock_guard lock(inside_->mutex);
  inside_->refuses = true;
}
std::uint64_t Network::overruns() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->overruns;
}
std::uint64_t Network::registered_bytes() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->most_registered;
}

}  // namespace tutti::rdma::fake
