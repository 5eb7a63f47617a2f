#include "transport/ring/ring.h"

#include <algorithm>
#include <string>

#include <tutti/error.hpp>

#include "common/ticks.h"

namespace tutti {

static_assert(SendRing::max_message_bytes(SendRing::least_data_bytes(1)) >= 1);
static_assert(SendRing::max_message_bytes(SendRing::least_data_bytes(100'000)) >= 100'000);
static_assert(SendRing::least_data_bytes(1) == 3 * kCacheLine, "the smallest ring");

SendRing* RecvRing::ring_of(const Origin& origin) const noexcept {
  assert(origin.answers_ring());
  if (outside_.back == nullptr) return nullptr;
  const auto found = outside_.back->find(origin.channel);
  return found == outside_.back->end() ? nullptr : found->second;
}

namespace {

[[noreturn]] void refuse(const char* claim) {
  throw Error(ErrorKind::corrupt,
              std::string("a message claims to ") + claim +
                  ": the sender's memory is damaged or it runs another version");
}

}  // namespace

void SendRing::refuse_release() {
  throw Error(
      ErrorKind::corrupt,
      "a peer has released more messages than it was sent: its memory is damaged or it runs "
      "another version");
}

KernelCopies::Choice SendRing::choose_copies(int copy_class, bool both_ways) noexcept {
  if (!CopyClass::is_timed(copy_class) || !peer_gets()) return {};
  const KernelCopies::Choice choice = kernel_copies_.choose(copy_class, both_ways, [&] {
    const auto& word = memory_->read_times[copy_class - 1];
    return ReadTimes::unpacked(word.load(std::memory_order_relaxed));
  });
  // The reader may have found out meanwhile that it can no longer read this process.
  if (choice.by_kernel) peer_gets_ = memory_->gets.load(std::memory_order_acquire);
  return peer_gets_ ? choice : KernelCopies::Choice();
}

namespace {

// Returns null where the segment is not known here; otherwise `found` keeps it alive.
std::byte* find(const Segments* segments, const Extent& extent, std::size_t bytes, Segment& found) {
  if (segments == nullptr || extent.segment == 0) return nullptr;
  found = segments->find(extent.segment);
  if (found.memory == nullptr) return nullptr;
  if (bytes > found.bytes || extent.offset > found.bytes - bytes)
    refuse("lie beyond the end of what its sender lends");
  return found.memory.get() + extent.offset;
}

}  // namespace

const std::byte* RecvRing::outside_ring(bool& zero_copy) const {
  assert(origin_.outside_ring());
  const std::size_t bytes = header_.length;
  const Extent extent{origin_.segment, origin_.offset};
  if (origin_.zero_copy() && outside_.peers != nullptr) {
    zero_copy = true;
    if (remote()) return nullptr;
    return find(outside_.peers, extent, bytes, message_);
  }
  const std::byte* data = nullptr;
  if (!origin_.answers_ring())
    data = find(outside_.own, extent, bytes, message_);
  else if (const SendRing* ring = ring_of(origin_))
    data = ring->answer(origin_, bytes);
  if (data == nullptr) refuse("answer one that was never sent");
  return data;
}

// Returns the bytes of the peeked remote message and of those behind it, as far as they lie one
// after the other in the writer's memory and `most` bytes suffice for them.
std::size_t RecvRing::bytes_in_a_row(std::size_t most) const noexcept {
  std::size_t bytes = header_.length;
  for (std::uint64_t n = next_ + 1; n < next_ + kLines; ++n) {
    const Line& line = lines_[n & mask_];
    if (line.sequence.load(std::memory_order_acquire) != n + 1) break;
    const std::size_t length = line.header.length;
    Origin origin;
    std::memcpy(&origin, line.payload, sizeof origin);
    if (length <= kInlineBytes || origin.segment != kAllMemory || !origin.zero_copy() ||
        origin.offset != origin_.offset + bytes || bytes + length > most)
      break;
    bytes += length;
  }
  return bytes;
}

namespace {

// The deadline of a call is checked between two copies.
constexpr std::size_t kMostAtOnce = 1u << 20;

[[noreturn]] void refuse_to_read() {
  throw Error(ErrorKind::unavailable,
              "the memory of the sender's process can no longer be read (process_vm_readv): it has "
              "changed its user, or forbidden it (PR_SET_DUMPABLE, a filter of system calls). Do "
              "so before the communicator is made, or at once after that");
}

}  // namespace

const std::byte* RecvRing::get(std::byte* to, std::size_t room) {
  assert(peeked_ && remote());
  if (outside_.all == nullptr) refuse("lie where this rank cannot read");
  const std::size_t own = header_.length;
  assert(to == nullptr || own <= room);
  if (to != nullptr && ahead_.to == to && ahead_.from == origin_.offset && own <= ahead_.bytes) {
    ahead_ = {to + own, origin_.offset + own, ahead_.bytes - own};
    return to;
  }
  ahead_ = {};
  if (to == nullptr) {
    copy_.resize(own);
    to = copy_.data();
    room = own;
  }
  const std::size_t bytes = bytes_in_a_row(std::min(room, std::max(own, kMostAtOnce)));
  const std::uint64_t begin = ticks();
  PeerMemory::Read read = outside_.all->read(origin_.offset, to, bytes);
  if (read == PeerMemory::Read::done) {
    if (is_timed()) record(ticks() - begin, bytes, true);
    ahead_ = {to + own, origin_.offset + own, bytes - own};
  } else if (read == PeerMemory::Read::nothing && bytes > own) {
    read = outside_.all->read(origin_.offset, to, own);
  }
  if (read == PeerMemory::Read::denied) refuse_to_read();
  if (read == PeerMemory::Read::nothing && still_valid())
    refuse("lie where its sender has no memory: a buffer that was given back during its call");
  return read == PeerMemory::Read::done ? to : nullptr;
}

void RecvRing::record(std::uint64_t elapsed, std::size_t bytes, bool by_kernel) noexcept {
  assert(peeked_ && is_timed());
  // A process may forbid others to read it at any time: it is asked before each trial.
  if (!by_kernel && !sender_can_be_read()) memory_->gets.store(false, std::memory_order_release);
  const auto index = static_cast<std::size_t>(origin_.channel) - 1;
  ReadTimes& times = times_[index];
  (by_kernel ? times.kernel : times.ring).record(origin_.channel, elapsed, bytes);
  memory_->read_times[index].store(times.packed(), std::memory_order_relaxed);
}

// Whether this rank may still read the memory of the writer's process, for which it reads what it
// knows.
bool RecvRing::sender_can_be_read() const noexcept {
  std::uint64_t copy = 0;
  const std::uint64_t home = memory_->home;
  return outside_.all == nullptr || home == 0 ||
         outside_.all->read(home + offsetof(RingMemory, home), &copy, sizeof copy) !=
             PeerMemory::Read::denied;
}

std::byte* RecvRing::answer_data() const {
  if (remote()) return nullptr;
  if (origin_.zero_copy()) return find(outside_.peers, origin_.answer, header_.length, answer_);
  if (origin_.outside_ring() || outside_.back == nullptr) return nullptr;
  return const_cast<std::byte*>(data_) + offset();
}

}  // namespace tutti
