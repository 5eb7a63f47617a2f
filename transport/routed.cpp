#include "transport/routed.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

namespace tutti {
namespace {

using Parts = std::vector<std::unique_ptr<Transport>>;

/// Reaches each peer by one of several transports. It is used only by its communicator's thread.
class Routed final : public Transport {
 public:
  Routed(Parts parts, std::vector<std::size_t> route, std::shared_ptr<OwnPage> status_page)
      : status_page_(std::move(status_page)), parts_(std::move(parts)), route_(std::move(route)) {
    assert(!parts_.empty());
    assert(std::all_of(route_.begin(), route_.end(),
                       [&](std::size_t part) { return part < parts_.size(); }));
  }
  ~Routed() override {
    close();
    while (parts_.size() > 1) parts_.pop_back();  // They show the first part's status page.
  }

  /// Is never called: the parts of the first communicator are connected already, and join()
  /// connects those of communicators that were split off.
  void connect(std::span<const std::string>, TimePoint) override { assert(false); }
  std::vector<int> join() override;
  const LinkCapabilities& link(int peer) const override { return to(peer).link(peer); }

  SendChannel& sender(int peer, int number) override { return to(peer).sender(peer, number); }
  RecvChannel& receiver(int peer, int number) override { return to(peer).receiver(peer, number); }

  void progress() override {
    for (const auto& part : parts_) part->progress();
  }
  void arm() override {
    for (const auto& part : parts_) part->arm();
  }
  void disarm() noexcept override {
    for (const auto& part : parts_) part->disarm();
  }
  bool leaves_at_once() const override {
    return all([](const Transport& part) { return part.leaves_at_once(); });
  }
  bool all_left() override {
    return all([](Transport& part) { return part.all_left(); });
  }
  // A descriptor that watches those of the parts would be one more step for each event, of which
  // the kernel allows few.
  std::vector<int> wait_fds() const override {
    std::vector<int> fds;
    for (const auto& part : parts_)
      for (const int fd : part->wait_fds()) fds.push_back(fd);
    return fds;
  }

  PeerStatus status(int peer) override { return to(peer).status(peer); }
  StatusPage& own_status_page() override { return parts_.front()->own_status_page(); }
  const StatusPage* status_page(int peer) override { return to(peer).status_page(peer); }
  const StatusPage* recent_status_page(int peer) override {
    return to(peer).recent_status_page(peer);
  }
  bool background_progress() override {
    bool asked = false;
    for (const auto& part : parts_) asked = part->background_progress() || asked;
    return asked;
  }
  void wake(int peer) override { to(peer).wake(peer); }

  std::unique_ptr<Transport> split(const Subset& subset) override;

  /// Returns the index of the part that reaches a peer.
  std::size_t part_of(std::size_t peer) const { return route_[peer]; }
  /// Gives its parts to another one. Only part_of() may be called from now on. The parts show a
  /// page that is not its own.
  Parts release_parts() {
    assert(status_page_ == nullptr);
    return std::exchange(parts_, {});
  }

  std::optional<Registration> allocate_registered(std::size_t bytes) override;
  void unregister(std::uint32_t segment) noexcept override {
    for (const auto& part : parts_) part->unregister(segment);
  }
  void share_registered(const Registration& memory) override {
    for (const auto& part : parts_) part->share_registered(memory);
  }
  const Segments* registered() const noexcept override { return parts_.front()->registered(); }
  std::shared_ptr<void> register_memory(std::byte* data, std::size_t bytes) override;
  void revoke(int peer) noexcept override { to(peer).revoke(peer); }
  bool prefers_zero_copy() const noexcept override {
    return !all([](const Transport& part) { return !part.prefers_zero_copy(); });
  }

  std::size_t memory_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& part : parts_) bytes += part->memory_bytes();
    return bytes;
  }
  void close() noexcept override {
    for (const auto& part : parts_) part->close();
  }

 private:
  Transport& to(int peer) const {
    assert(peer >= 0 && static_cast<std::size_t>(peer) < route_.size());
    return *parts_[route_[static_cast<std::size_t>(peer)]];
  }
  template <typename Test>
  bool all(Test&& test) const {
    return std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) { return test(*part); });
  }

  const std::shared_ptr<OwnPage> status_page_;  // null where the first part made the page
  Parts parts_;
  const std::vector<std::size_t> route_;  // indexed by peer
};

std::vector<int> Routed::join() {
  std::set<int> missing;
  for (const auto& part : parts_)
    for (const int member : part->join()) missing.insert(member);
  if (missing.empty() && status_page_ != nullptr) status_page_->be_connected();
  return {missing.begin(), missing.end()};
}

std::optional<Registration> Routed::allocate_registered(std::size_t bytes) {
  std::optional<Registration> memory = parts_.front()->allocate_registered(bytes);
  if (!memory) return std::nullopt;
  try {
    for (std::size_t part = 1; part < parts_.size(); ++part)
      parts_[part]->share_registered(*memory);
  } catch (...) {
    unregister(memory->number);
    throw;
  }
  return memory;
}

std::shared_ptr<void> Routed::register_memory(std::byte* data, std::size_t bytes) {
  std::vector<std::shared_ptr<void>> registered;
  for (const auto& part : parts_)
    if (auto its = part->register_memory(data, bytes)) registered.push_back(std::move(its));
  if (registered.empty()) return nullptr;
  return std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(registered));
}

// All parts are split, even those that reach none of the members, because a thread that waits in
// this communicator also serves the peers of the other parts. Each knows only those members that it
// reaches.
std::unique_ptr<Transport> Routed::split(const Subset& subset) {
  assert(subset.numbers.size() == subset.members.size());
  Parts parts;
  auto status_page = status_page_ != nullptr && subset.status_page.page == nullptr
                         ? std::make_shared<OwnPage>(status_page_->is_shared())
                         : nullptr;
  ShownPage page = status_page != nullptr ? shown(status_page) : subset.status_page;
  for (const auto& part : parts_) {
    Subset own = subset;
    own.status_page = page;
    parts.push_back(part->split(own));
    if (parts.back() == nullptr) return nullptr;
    if (page.page == nullptr) page = page_of_another(parts.front()->own_status_page());
  }
  std::vector<std::size_t> route;
  for (const int member : subset.members)
    route.push_back(member == kElsewhere ? 0 : route_[static_cast<std::size_t>(member)]);
  return std::make_unique<Routed>(std::move(parts), std::move(route), std::move(status_page));
}

}  // namespace

// The parts of a part that has several become parts of the whole.
std::unique_ptr<Transport> route(std::vector<std::unique_ptr<Transport>> given,
                                 std::vector<std::size_t> route,
                                 std::shared_ptr<OwnPage> status_page) {
  Parts parts;
  std::vector<std::size_t> first;  // By given part: where its own parts begin in `parts`.
  std::vector<const Routed*> routed;
  std::vector<std::unique_ptr<Transport>> emptied;
  for (auto& part : given) {
    first.push_back(parts.size());
    auto* const several = dynamic_cast<Routed*>(part.get());
    routed.push_back(several);
    if (several == nullptr) {
      parts.push_back(std::move(part));
      continue;
    }
    for (auto& its : several->release_parts()) parts.push_back(std::move(its));
    emptied.push_back(std::move(part));
  }
  for (std::size_t peer = 0; peer < route.size(); ++peer) {
    const std::size_t part = route[peer];
    route[peer] = first[part] + (routed[part] != nullptr ? routed[part]->part_of(peer) : 0);
  }
  if (status_page != nullptr) status_page->be_connected();
  return std::make_unique<Routed>(std::move(parts), std::move(route), std::move(status_page));
}

}  // namespace tutti
