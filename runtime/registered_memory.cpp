// Makes Buffers: registered memory, which a communicator's peers read and write in place,
// and registers memory of the program with which network devices work.
#include "runtime/registered_memory.h"

#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <tutti/buffer.hpp>
#include <tutti/communicator.hpp>
#include <tutti/error.hpp>

#include "runtime/calling.h"
#include "runtime/communicator_impl.h"

namespace tutti {

struct Buffer::Inside {
  ~Inside() {
    if (registrar != nullptr) registrar->unregister(registration.number);
  }

  std::shared_ptr<Registrar> registrar;  // null if the memory is not registered
  Registration registration;
  std::shared_ptr<void> for_devices;  // ends before the memory does
};

namespace {

Segment own_memory(std::size_t bytes) {
  assert(bytes > 0);
  constexpr std::align_val_t kPage{4096};
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kPage, std::nothrow));
  if (memory == nullptr)
    throw Error(ErrorKind::unavailable, fmt::format("no memory for a buffer of {} bytes", bytes));
  std::memset(memory, 0, bytes);
  return {{memory, [](std::byte* data) { ::operator delete(data, kPage); }}, bytes};
}

}  // namespace

std::optional<Registration> CommunicatorImpl::allocate_registered(std::size_t bytes) {
  const Calling calling(*this, "Buffer::allocate");
  failure_.check_usable("Buffer::allocate");
  planner_.forget_last();  // calls with registered memory need other programs
  return parts_.transport->allocate_registered(bytes);
}

Buffer Buffer::allocate(Communicator& communicator, std::size_t bytes) {
  auto inside = std::make_unique<Inside>();
  if (bytes == 0) return Buffer(std::move(inside));
  const std::shared_ptr<Registrar> registrar = communicator.impl_->registrar();
  if (auto registered = communicator.impl_->allocate_registered(bytes)) {
    inside->registration = std::move(*registered);
    inside->registration.file.reset();  // Each peer gets a descriptor of its own.
    inside->registrar = registrar;
  } else {
    inside->registration.segment = own_memory(bytes);
  }
  inside->for_devices =
      communicator.impl_->register_memory(inside->registration.segment.memory.get(), bytes);
  assert(inside->registration.segment.memory != nullptr);
  assert(inside->registration.segment.bytes == bytes);
  return Buffer(std::move(inside));
}

Buffer::Buffer(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Buffer::Buffer(Buffer&&) noexcept = default;
Buffer& Buffer::operator=(Buffer&&) noexcept = default;
Buffer::~Buffer() = default;

std::byte* Buffer::data() const noexcept {
  return inside_ != nullptr ? inside_->registration.segment.memory.get() : nullptr;
}
std::size_t Buffer::bytes() const noexcept {
  return inside_ != nullptr ? inside_->registration.segment.bytes : 0;
}
RegisteredMemory RegisteredMemory::of(Communicator& communicator, void* data, std::size_t bytes) {
  if (data == nullptr && bytes > 0)
    throw Error(ErrorKind::usage, "RegisteredMemory::of: data is null");
  CommunicatorImpl& its = CommunicatorImpl::of(communicator);
  const Calling calling(its, "RegisteredMemory::of");
  its.failure().check_usable("RegisteredMemory::of");
  if (bytes == 0) return RegisteredMemory(nullptr);
  return RegisteredMemory(its.register_memory(static_cast<std::byte*>(data), bytes));
}

bool Buffer::shared() const noexcept { return inside_ != nullptr && inside_->registrar != nullptr; }

}  // namespace tutti
