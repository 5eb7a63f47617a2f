#include "fake_verbs.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>

#include <tutti/error.hpp>

#include "common/fd.h"
#include "common/random.h"
#include "common/text.h"

namespace tutti::qp::fake {
namespace {

constexpr const char* kFlushed = "Work Request Flushed Error";
constexpr const char* kUnanswered = "transport retry counter exceeded";
constexpr const char* kNotReady = "RNR retry counter exceeded";
constexpr const char* kNoAccess = "remote access error";
constexpr const char* kHidden = "its completion queue cannot be polled";
constexpr std::size_t kMostReadBytes = 1 << 30;

}  // namespace

class FakePair;
struct FakeEvents {
  std::vector<void*> owners;
  Fd fd{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
};

/// Memory that the queue pair of a number, and its peer, may name by its keys.
struct FakeMemory {
  std::uint64_t pair = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool readable = false;
};

struct Network::Inside {
  explicit Inside(std::uint64_t seed) : random(seed) {}

  std::mutex mutex;
  SeededRandom random;
  std::map<std::uint64_t, FakePair*> pairs;
  std::uint64_t last = 0, overruns = 0, registered = 0, most_registered = 0;
  std::uint64_t swallowed = 0, held = 0, hidden = 0;
  std::uint64_t limit = ~std::uint64_t{0};
  std::uint64_t reads = 0, read_bytes = 0, sent_bytes = 0, refused_reads = 0;
  std::uint32_t reads_at_once = 4, last_key = 100;
  std::map<std::uint32_t, FakeMemory> memory;  // by local key; the remote key is the next number
  bool holds_reads = false, is_cut = false, refuses = false, refuses_requests = false;
  std::size_t devices = 0;
  std::set<std::size_t> dead_ports;
  std::map<std::size_t, std::uint32_t> slow_ports;     // polls of a read, by device
  std::map<std::size_t, std::uint64_t> bytes_by_port;  // that were read
};
using Inside = Network::Inside;

class FakeRegion final : public Region {
 public:
  FakeRegion(std::shared_ptr<Inside> network, const FakeMemory& memory)
      : network_(std::move(network)), bytes_(memory.bytes) {
    const std::lock_guard lock(network_->mutex);
    if (network_->registered + bytes_ > network_->limit)
      throw Error(ErrorKind::unavailable, "the fake device may lock no more memory");
    network_->registered += bytes_;
    network_->most_registered = std::max(network_->most_registered, network_->registered);
    key_ = network_->last_key += 2;
    network_->memory.emplace(key_, memory);
  }
  ~FakeRegion() override {
    const std::lock_guard lock(network_->mutex);
    network_->registered -= bytes_;
    network_->memory.erase(key_);
  }
  std::uint32_t local_key() const noexcept override { return key_; }
  std::uint32_t remote_key() const noexcept override { return key_ + 1; }

 private:
  const std::shared_ptr<Inside> network_;
  const std::size_t bytes_;
  std::uint32_t key_ = 0;
};

/// Represents a queue pair. The network's lock guards all of them.
class FakePair final : public QueuePair {
 public:
  FakePair(std::shared_ptr<Inside> network, std::shared_ptr<FakeEvents> events, std::size_t device,
           const QueueLimits& limits, void* owner)
      : network_(std::move(network)),
        events_(std::move(events)),
        device_(device),
        limits_(limits),
        owner_(owner) {
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
    reads_at_once_ = std::min(network_->reads_at_once, limits_.reads);
    peer_reads_ = network_->reads_at_once > 0;
  }
  ReadLimits reads() const noexcept override {
    return {reads_at_once_, peer_reads_, kMostReadBytes};
  }
  std::unique_ptr<Region> add(std::byte* memory, std::size_t bytes, bool readable) override {
    return std::make_unique<FakeRegion>(network_, FakeMemory{number_, memory, bytes, readable});
  }

  bool send(std::uint32_t id, const Piece& piece) noexcept override {
    const std::lock_guard lock(network_->mutex);
    assert(sends_under_way_ < limits_.sends && "more sends than the queue has room for");
    if (takes_nothing()) return false;
    ++sends_under_way_;
    const Completion done{Completion::What::sent, id, piece.bytes};
    if (failed_) return finish(done, kFlushed), true;
    if (network_->swallowed == number_) return swallowed_.push_back(done), true;
    if (!reaches_peer()) return fail(done, kUnanswered), true;
    FakePair& peer = *network_->pairs.find(peer_)->second;
    if (peer.receives_.empty()) {
      ++network_->overruns;
      return fail(done, kNotReady), true;
    }
    const auto [its_id, place] = peer.receives_.front();
    peer.receives_.pop_front();
    assert(piece.bytes <= place.bytes);
    if (piece.bytes != 0) std::memcpy(place.data, piece.data, piece.bytes);
    network_->sent_bytes += piece.bytes;
    peer.finish({Completion::What::received, its_id, piece.bytes}, nullptr);
    finish(done, nullptr);
    return true;
  }
  bool receive(std::uint32_t id, const Piece& piece) noexcept override {
    const std::lock_guard lock(network_->mutex);
    assert(receives_.size() < limits_.receives);
    if (takes_nothing()) return false;
    if (failed_)
      finish({Completion::What::received, id, 0}, kFlushed);
    else
      receives_.emplace_back(id, piece);
    return true;
  }
  bool read(std::uint32_t id, const Piece& to, std::uint64_t address,
            std::uint32_t remote_key) noexcept override {
    const std::lock_guard lock(network_->mutex);
    const auto under_way = std::count_if(sent_.begin(), sent_.end(), [](const Finished& each) {
      return each.done.what == Completion::What::read;
    });
    assert(static_cast<std::uint32_t>(under_way) < reads_at_once_ && "more reads than allowed");
    static_cast<void>(under_way);
    assert(has_memory(number_, to.local_key, to.data, to.bytes, false));
    if (takes_nothing()) return false;
    const Completion done{Completion::What::read, id, to.bytes};
    if (failed_) return finish(done, kFlushed), true;
    sent_.push_back({done, true, to, address, remote_key});
    if (armed_once_) read_all();
    return true;
  }
  std::size_t poll(std::span<Completion> completions) noexcept override {
    const std::lock_guard lock(network_->mutex);
    std::size_t count = 0;
    if (network_->hidden == number_) {
      completions[0] = {Completion::What::nothing, 0, 0, kHidden};
      return 1;
    }
    if (sent_.empty() || !sent_.front().to_read)
      polls_of_read_ = 0;
    else
      ++polls_of_read_;
    // Each completion may be some polls late, and those of sends and of receives come in any order.
    while (count < completions.size() && has_finished() &&
           (armed_once_ || network_->random.next() % 4 != 0)) {
      const bool sent = is_next_sent();
      if (sent && sent_.front().to_read) read_now(sent_.front());
      std::deque<Finished>& from = sent ? sent_ : received_;
      completions[count++] = from.front().done;
      if (sent && from.front().done.what == Completion::What::sent) --sends_under_way_;
      if (from.front().done.what == Completion::What::read) polls_of_read_ = 0;
      from.pop_front();
    }
    return count;
  }
  void arm() noexcept override {
    const std::lock_guard lock(network_->mutex);
    armed_ = armed_once_ = true;
    read_all();
  }
  void stop() noexcept override {
    const std::lock_guard lock(network_->mutex);
    fail_all();
  }
  bool has_failed() const { return failed_; }
  // The acknowledgements of what was sent last are lost.
  void break_down() {
    if (failed_) return;
    const auto read =
        std::find_if(sent_.begin(), sent_.end(), [](const Finished& each) { return each.to_read; });
    const auto some = static_cast<std::size_t>(read - sent_.begin());
    for (std::size_t i = network_->random.next() % (some + 1); i < sent_.size(); ++i)
      if (sent_[i].done.error == nullptr) sent_[i].done.error = kUnanswered;
    fail_all();
  }

 private:
  /// A request that has finished, or one to read that waits behind those before it.
  struct Finished {
    Completion done;
    bool to_read = false;
    Piece to;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
  };

  void finish(Completion completion, const char* error) {
    completion.error = error;
    const bool received = completion.what == Completion::What::received;
    (received ? received_ : sent_).push_back({completion, false, {}, 0, 0});
    announce();
  }
  void announce() {
    if (!armed_) return;
    armed_ = false;
    events_->owners.push_back(owner_);
    eventfd_write(events_->fd.get(), 1);
  }
  bool reaches_peer() const {
    const auto to = network_->pairs.find(peer_);
    return !network_->is_cut && to != network_->pairs.end() && !to->second->failed_ &&
           !network_->dead_ports.contains(device_) &&
           !network_->dead_ports.contains(to->second->device_);
  }
  bool may_read() const { return !network_->holds_reads; }
  bool takes_nothing() const { return failed_ && network_->refuses_requests; }
  bool is_slow() const {
    const auto found = network_->slow_ports.find(device_);
    return found != network_->slow_ports.end() && polls_of_read_ < found->second;
  }
  bool has_sent() const {
    return !sent_.empty() && network_->held != number_ &&
           (!sent_.front().to_read || (may_read() && !is_slow()));
  }
  bool has_memory(std::uint64_t pair, std::uint32_t key, const std::byte* data, std::size_t bytes,
                  bool readable) const {
    const auto found = network_->memory.find(key);
    if (found == network_->memory.end() || found->second.pair != pair) return false;
    const FakeMemory& memory = found->second;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data);
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    return memory.readable >= readable && at >= begin && at - begin <= memory.bytes &&
           bytes <= memory.bytes - (at - begin);
  }
  // Does what a request to read asks for. Where the peer does not permit it, both fail.
  void read_now(Finished& next) {
    next.to_read = false;
    if (!reaches_peer()) {
      next.done.error = kUnanswered;
      return fail_all();
    }
    const auto* const data = reinterpret_cast<const std::byte*>(next.address);
    if (!has_memory(peer_, next.key - 1, data, next.to.bytes, true)) {
      ++network_->refused_reads;
      next.done.error = kNoAccess;
      fail_all();
      return network_->pairs.find(peer_)->second->fail_all();
    }
    std::memcpy(next.to.data, data, next.to.bytes);
    ++network_->reads;
    network_->read_bytes += next.to.bytes;
    network_->bytes_by_port[device_] += next.to.bytes;
  }
  void read_all() {
    if (!may_read()) return;
    for (Finished& each : sent_)
      if (each.to_read) {
        read_now(each);
        announce();
      }
  }
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
    for (Finished& each : sent_)
      if (std::exchange(each.to_read, false)) each.done.error = kFlushed;
    if (!sent_.empty()) announce();
    for (const Completion& each : swallowed_) finish(each, kFlushed);
    swallowed_.clear();
    for (const auto& [id, piece] : receives_) finish({Completion::What::received, id, 0}, kFlushed);
    receives_.clear();
  }

  const std::shared_ptr<Inside> network_;
  const std::shared_ptr<FakeEvents> events_;
  const std::size_t device_;
  const QueueLimits limits_;
  void* const owner_;
  std::uint64_t number_ = 0, peer_ = 0;
  bool failed_ = false, armed_ = false;
  // Completions are late only until somebody sleeps: an event promises that they are there.
  bool armed_once_ = false;
  std::uint32_t sends_under_way_ = 0, reads_at_once_ = 0;
  std::uint32_t polls_of_read_ = 0;  // since the oldest request is one to read
  bool peer_reads_ = false;
  std::deque<std::pair<std::uint32_t, Piece>> receives_;
  std::deque<Finished> sent_, received_;
  std::vector<Completion> swallowed_;
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(std::shared_ptr<Inside> network) : network_(std::move(network)) {
    const std::lock_guard lock(network_->mutex);
    number_ = network_->devices++;
  }

  std::unique_ptr<QueuePair> make(const QueueLimits& limits, void* owner) override {
    return std::make_unique<FakePair>(network_, events_, number_, limits, owner);
  }
  const char* name() const noexcept override { return "RDMA"; }
  std::string port() const override { return "fake" + std::to_string(number_); }
  bool is_up() const noexcept override {
    const std::lock_guard lock(network_->mutex);
    return !network_->dead_ports.contains(number_);
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
  std::size_t number_ = 0;
};

Network::Network(std::uint64_t seed) : inside_(std::make_shared<Inside>(seed)) {}
Network::~Network() = default;

std::shared_ptr<Device> Network::make_device() { return std::make_shared<FakeDevice>(inside_); }

void Network::cut() {
  const std::lock_guard lock(inside_->mutex);
  inside_->is_cut = true;
}
void Network::set_port(std::size_t device, bool works) {
  const std::lock_guard lock(inside_->mutex);
  if (works)
    inside_->dead_ports.erase(device);
  else
    inside_->dead_ports.insert(device);
}
void Network::fail_pair(std::uint64_t pair) {
  const std::lock_guard lock(inside_->mutex);
  if (const auto found = inside_->pairs.find(pair); found != inside_->pairs.end())
    found->second->break_down();
}
void Network::fail_any() {
  const std::lock_guard lock(inside_->mutex);
  std::vector<FakePair*> sound;
  for (const auto& [number, pair] : inside_->pairs)
    if (!pair->has_failed()) sound.push_back(pair);
  if (!sound.empty()) sound[inside_->random.next() % sound.size()]->break_down();
}
std::uint64_t Network::last_pair() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->last;
}
void Network::swallow(std::uint64_t pair) {
  const std::lock_guard lock(inside_->mutex);
  inside_->swallowed = pair;
}
void Network::hold_acknowledgements(std::uint64_t pair) {
  const std::lock_guard lock(inside_->mutex);
  inside_->held = pair;
}
void Network::hold_reads(bool hold) {
  const std::lock_guard lock(inside_->mutex);
  inside_->holds_reads = hold;
}
void Network::slow_reads(std::size_t device, std::uint32_t polls) {
  const std::lock_guard lock(inside_->mutex);
  inside_->slow_ports[device] = polls;
}
void Network::limit_registered(std::uint64_t bytes) {
  const std::lock_guard lock(inside_->mutex);
  inside_->limit = bytes;
}
void Network::limit_reads(std::uint32_t at_once) {
  const std::lock_guard lock(inside_->mutex);
  inside_->reads_at_once = at_once;
}
std::uint64_t Network::reads() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->reads;
}
std::uint64_t Network::read_bytes() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->read_bytes;
}
std::uint64_t Network::read_bytes(std::size_t device) const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->bytes_by_port[device];
}
std::uint64_t Network::sent_bytes() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->sent_bytes;
}
std::uint64_t Network::refused_reads() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->refused_reads;
}
void Network::refuse() {
  const std::lock_guard lock(inside_->mutex);
  inside_->refuses = true;
}
void Network::refuse_requests() {
  const std::lock_guard lock(inside_->mutex);
  inside_->refuses_requests = true;
}
void Network::hide_completions(std::uint64_t pair) {
  const std::lock_guard lock(inside_->mutex);
  inside_->hidden = pair;
}
std::uint64_t Network::overruns() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->overruns;
}
std::uint64_t Network::registered_now() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->registered;
}
std::uint64_t Network::registered_bytes() const {
  const std::lock_guard lock(inside_->mutex);
  return inside_->most_registered;
}

}  // namespace tutti::qp::fake
