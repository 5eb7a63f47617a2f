#include "mail_transport.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <tutti/error.hpp>

#include "transport/page_bytes.h"
#include "transport/ring/memory_channel.h"

namespace tutti::mail {
namespace {

constexpr std::size_t kWindow = 3;  // unreleased messages of a channel

/// A rank's mailbox, into which its peers put messages under a lock.
struct Box {
  struct Letter {
    Header header;
    std::vector<std::byte> payload;
  };
  using Channel = std::pair<int, int>;  // sender, number

  std::mutex mutex;
  std::map<Channel, std::deque<Letter>> letters;
  StatusPage page{};  // The page that its rank has shown last.
  std::shared_ptr<const Doorbell> bell;

  void ring() const {
    if (bell != nullptr) bell->ring();
  }
};

// Returns the mailboxes of all ranks, which have numbers so that an address can be text.
struct PostOffice {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Box>> boxes;
  std::uint64_t last = 0;
};
PostOffice& post_office() {
  static PostOffice office;
  return office;
}

void copy_page(const StatusPage& from, StatusPage& to) {
  write_status_page(to, read_status_page(from));
}

class MailSend final : public SendChannel {
 public:
  MailSend(Box& to, Box::Channel channel, std::size_t most)
      : to_(to), channel_(channel), most_(most) {}
  std::optional<Span> acquire(std::size_t bytes) override {
    if (bytes > most_) throw Error(ErrorKind::internal, "a message larger than the largest");
    const std::lock_guard lock(to_.mutex);
    if (to_.letters[channel_].size() == kWindow) return std::nullopt;
    staging_.reserve(1);  // There must be memory even for no bytes.
    staging_.resize(bytes);
    return Span{staging_.data(), bytes};
  }
  MemoryKinds zero_copy() const noexcept override { return MemoryKind::shared; }
  bool acquire_zero_copy(const Memory& message) override {
    if (!acquire(message.bytes)) return false;
    // A device would read it in this way.
    std::memcpy(staging_.data(), message.address, message.bytes);
    registered_bytes().fetch_add(message.bytes);
    return true;
  }
  void post(const Header& header) override {
    assert(header.length == staging_.size());
    const std::lock_guard lock(to_.mutex);
    to_.letters[channel_].push_back({header, std::exchange(staging_, {})});
    to_.ring();
  }

 private:
  Box& to_;
  const Box::Channel channel_;
  const std::size_t most_;
  std::vector<std::byte> staging_;
};

class MailRecv final : public RecvChannel {
 public:
  MailRecv(Box& own, const Box& from, Box::Channel channel)
      : own_(own), from_(from), channel_(channel) {}
  std::optional<Message> peek() override {
    const std::lock_guard lock(own_.mutex);
    const auto& letters = own_.letters[channel_];
    if (letters.empty()) return std::nullopt;
    return Message{letters.front().payload.data(), letters.front().header};
  }
  void release() override {
    const std::lock_guard lock(own_.mutex);
    own_.letters[channel_].pop_front();
    from_.ring();
  }

 private:
  Box& own_;
  const Box& from_;
  const Box::Channel channel_;
};

class MailTransport final : public Transport {
 public:
  MailTransport(const Kind& kind, const TransportContext& context, LinkCapabilities link)
      : kind_(kind),
        context_(context),
        link_(link),
        page_(context.status_page.page != nullptr ? *context.status_page.page : own_page_) {
    box_->bell = context.doorbell;
    PostOffice& office = post_office();
    const std::lock_guard lock(office.mutex);
    office.boxes[number_ = ++office.last] = box_;
  }
  ~MailTransport() override { close(); }

  std::string address() const override { return std::to_string(number_); }
  void connect(std::span<const std::string> addresses, TimePoint) override {
    PostOffice& office = post_office();
    const std::lock_guard lock(office.mutex);
    for (const std::string& address : addresses)
      peers_.push_back(address.empty() ? nullptr : office.boxes.at(std::stoull(address)).lock());
  }
  std::string why_unconnected(int peer) const override {
    return kind_.connects(context_.rank, peer) ? "" : "the mail is lost";
  }
  const LinkCapabilities& link(int) const override { return link_; }

  SendChannel& sender(int peer, int number) override {
    auto& channel = senders_[{peer, number}];
    if (channel == nullptr)
      channel = std::make_unique<MailSend>(box_of(peer), Box::Channel{context_.rank, number},
                                           link_.largest_message);
    return *channel;
  }
  RecvChannel& receiver(int peer, int number) override {
    auto& channel = receivers_[{peer, number}];
    if (channel == nullptr)
      channel = std::make_unique<MailRecv>(*box_, box_of(peer), Box::Channel{peer, number});
    return *channel;
  }

  void progress() override {
    const std::lock_guard lock(box_->mutex);
    copy_page(page_, box_->page);
  }
  PeerStatus status(int peer) override { return status_on(*status_page(peer)); }
  StatusPage& own_status_page() override { return page_; }
  const StatusPage* status_page(int peer) override {
    if (peer == context_.rank) return &page_;
    Box& box = box_of(peer);
    StatusPage& copy = pages_[peer];
    const std::lock_guard lock(box.mutex);
    copy_page(box.page, copy);
    return &copy;
  }
  void wake(int peer) override {
    progress();
    box_of(peer).ring();
  }
  void close() noexcept override {
    page_.close();
    progress();
    for (const auto& peer : peers_)
      if (peer != nullptr) peer->ring();
  }

 private:
  Box& box_of(int peer) const {
    assert(peers_.at(static_cast<std::size_t>(peer)) != nullptr);
    return *peers_[static_cast<std::size_t>(peer)];
  }

  const Kind& kind_;
  const TransportContext context_;
  const LinkCapabilities link_;
  StatusPage own_page_{};
  StatusPage& page_;
  const std::shared_ptr<Box> box_ = std::make_shared<Box>();
  std::uint64_t number_ = 0;
  std::vector<std::shared_ptr<Box>> peers_;  // null where another transport reaches the peer
  std::map<int, StatusPage> pages_;
  std::map<std::pair<int, int>, std::unique_ptr<MailSend>> senders_;
  std::map<std::pair<int, int>, std::unique_ptr<MailRecv>> receivers_;
};

LinkCapabilities link_of(const Kind& kind) {
  LinkCapabilities link;
  link.may_fail = kind.may_fail;
  link.largest_message = kind.largest_message;
  link.bytes_per_second = kind.bytes_per_second;
  return link;
}

}  // namespace

std::atomic<std::size_t>& registered_bytes() {
  static std::atomic<std::size_t> bytes;
  return bytes;
}

std::optional<std::string> place(const Kind& kind, const TransportContext& context) {
  return fmt::format("{}", context.rank / kind.ranks_per_island);
}

Reach reach(const Kind& kind, std::string_view place, std::string_view other) {
  if (place != other) return {"the mail does not leave its island", {}};
  return {{}, link_of(kind)};
}

std::unique_ptr<Transport> make(const Kind& kind, const TransportContext& context) {
  if (!kind.is_made(context.rank)) throw Error(ErrorKind::unavailable, "there is no post office");
  LinkCapabilities link = link_of(kind);
  if (context.message_limit != 0) link.largest_message = context.max_message_bytes;
  return std::make_unique<MailTransport>(kind, context, link);
}

}  // namespace tutti::mail
