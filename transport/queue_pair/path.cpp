#include "transport/queue_pair/path.h"

#include <cassert>
#include <cstring>
#include <utility>

#include <tutti/error.hpp>

namespace tutti::qp {

Path::Path(std::uint32_t its_number, const Device* its_device, std::unique_ptr<QueuePair> pair,
           const SlotCounts& counts)
    : number(its_number),
      device(its_device),
      where(its_device != nullptr ? its_device->port() : "TCP"),
      counts_(counts),
      slots_(std::make_unique<Slots>(counts.all())),
      pair_(std::move(pair)),
      by_process_(pair_->needs_peer_process()) {
  register_slots();
}

Path::~Path() {
  pair_.reset();  // From now on the device works with its memory no more.
}

void Path::register_slots() {
  region_ = pair_->add(slots_->data(), slots_->bytes(), false);
  free_slots_.clear();
  for (std::uint32_t slot = counts_.all(); slot-- > counts_.to_receive();)
    free_slots_.push_back(slot);
  sent_bytes_.assign(counts_.sends, 0);
  room_ = counts_.receives;
}

void Path::open(const SlotCounts& counts) {
  if (counts.all() != counts_.all()) {
    region_.reset();
    counts_ = counts;
    slots_ = std::make_unique<Slots>(counts.all());
    register_slots();
  }
  for (std::uint32_t slot = 0; slot < counts_.to_receive(); ++slot)
    if (!receive(slot))
      throw Error(ErrorKind::unavailable, "the queue pair takes no requests to receive");
}

bool Path::is_sound() const noexcept {
  return room_ <= counts_.receives && unreturned_room_ <= counts_.receives &&
         free_slots_.size() <= counts_.sends && receives_ <= counts_.to_receive();
}

bool Path::receive(std::uint32_t slot) noexcept {
  assert(slot < counts_.to_receive());
  if (!pair_->receive(slot, {slots_->slot(slot), kSlotBytes, key()})) return false;
  ++receives_;
  return true;
}

bool Path::send(Frame frame, std::span<const std::byte> payload) noexcept {
  assert(has_slot() && payload.size() <= kPartBytes);
  await_acknowledgements();
  frame.room = static_cast<std::uint8_t>(std::exchange(unreturned_room_, 0));
  const std::uint32_t slot = last_slot_ = free_slots_.back();
  free_slots_.pop_back();
  if (frame.kind != FrameKind::room) {
    assert(room_ > 0);
    --room_;
  }
  std::byte* const data = slots_->slot(slot);
  std::memcpy(data, &frame, sizeof frame);
  if (!payload.empty()) std::memcpy(data + sizeof frame, payload.data(), payload.size());
  const auto bytes = static_cast<std::uint32_t>(sizeof frame + payload.size());
  sent_bytes_[slot - counts_.to_receive()] = bytes;
  return pair_->send(slot, {data, bytes, key()});
}

std::chrono::nanoseconds Path::silence(TimePoint now) noexcept {
  if (by_process_ || !is_live()) return {};
  if ((under_way() == 0 && reads == 0) || acknowledged_then_ != acknowledged_) {
    acknowledged_then_ = acknowledged_;
    unchanged_since_ = now;
  }
  return now - unchanged_since_;
}

}  // namespace tutti::qp
