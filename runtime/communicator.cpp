// The functions of the public class Communicator, each of which describes its call as a Call and
// hands it to CommunicatorImpl. Calls on blocks are in communicator_blocks.cpp, those that make
// communicators in communicator_membership.cpp, and those about plans in communicator_plans.cpp.
#include <tutti/communicator.hpp>

#include "runtime/calling.h"
#include "runtime/communicator_impl.h"

namespace tutti {

Communicator::Communicator(std::unique_ptr<CommunicatorImpl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  CommunicatorImpl::destroy(std::exchange(impl_, std::move(other.impl_)));
  return *this;
}
Communicator::~Communicator() { CommunicatorImpl::destroy(std::move(impl_)); }

std::size_t Communicator::memory_bytes() const {
  impl_->failure().refuse_in_child("memory_bytes");
  return impl_->memory_bytes();
}

int Communicator::rank() const noexcept { return impl_->parts().rank; }
int Communicator::size() const noexcept { return impl_->parts().size; }
std::shared_ptr<Store> Communicator::store() const { return impl_->parts().store; }
const std::vector<StartupPhase>& Communicator::startup() const noexcept {
  return impl_->parts().startup;
}
std::optional<Error> Communicator::failure() const { return impl_->failure().error(); }
void Communicator::abort(std::string_view why) { impl_->failure().abort(why); }

namespace {

Call all_reduce_call(const void* input, void* output, std::size_t count, DataType type, Op op,
                     const CallOptions& options) {
  return call_of(Collective::all_reduce, input, output, count, type, op, 0, options);
}
Call reduce_call(const void* input, void* output, std::size_t count, DataType type, Op op, int root,
                 const CallOptions& options) {
  return call_of(Collective::reduce, input, output, count, type, op, root, options);
}
Call broadcast_call(void* buffer, std::size_t count, DataType type, int root,
                    const CallOptions& options) {
  return call_of(Collective::broadcast, buffer, buffer, count, type, Op::sum, root, options);
}
Call barrier_call(const CallOptions& options) {
  return call_of(Collective::barrier, nullptr, nullptr, 0, DataType::uint8, Op::sum, 0, options);
}
TransferCall recv_call(void* buffer, std::size_t count, DataType type, int peer, int tag,
                       const CallOptions& options) {
  return {Direction::recv,
          type,
          peer,
          tag,
          count,
          static_cast<std::byte*>(buffer),
          options.timeout,
          options.received,
          options.group,
          options.stream};
}
TransferCall send_call(const void* buffer, std::size_t count, DataType type, int peer, int tag,
                       const CallOptions& options) {
  TransferCall call = recv_call(const_cast<void*>(buffer), count, type, peer, tag, options);
  call.direction = Direction::send;  // a send only reads the buffer
  call.received = nullptr;
  return call;
}

}  // namespace

void Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                              Op op, const CallOptions& options) {
  impl_->call(all_reduce_call(input, output, count, type, op, options));
}
Work Communicator::all_reduce_async(const void* input, void* output, std::size_t count,
                                    DataType type, Op op, const CallOptions& options) {
  return impl_->call_async(all_reduce_call(input, output, count, type, op, options));
}
Persistent Communicator::all_reduce_init(const void* input, void* output, std::size_t count,
                                         DataType type, Op op, const CallOptions& options) {
  return impl_->make_persistent(all_reduce_call(input, output, count, type, op, options));
}
void Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, Op op,
                          int root, const CallOptions& options) {
  impl_->call(reduce_call(input, output, count, type, op, root, options));
}
Work Communicator::reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                Op op, int root, const CallOptions& options) {
  return impl_->call_async(reduce_call(input, output, count, type, op, root, options));
}
Persistent Communicator::reduce_init(const void* input, void* output, std::size_t count,
                                     DataType type, Op op, int root, const CallOptions& options) {
  return impl_->make_persistent(reduce_call(input, output, count, type, op, root, options));
}
void Communicator::broadcast(void* buffer, std::size_t count, DataType type, int root,
                             const CallOptions& options) {
  impl_->call(broadcast_call(buffer, count, type, root, options));
}
Work Communicator::broadcast_async(void* buffer, std::size_t count, DataType type, int root,
                                   const CallOptions& options) {
  return impl_->call_async(broadcast_call(buffer, count, type, root, options));
}
Persistent Communicator::broadcast_init(void* buffer, std::size_t count, DataType type, int root,
                                        const CallOptions& options) {
  return impl_->make_persistent(broadcast_call(buffer, count, type, root, options));
}
void Communicator::barrier(const CallOptions& options) { impl_->call(barrier_call(options)); }
Work Communicator::barrier_async(const CallOptions& options) {
  return impl_->call_async(barrier_call(options));
}
Persistent Communicator::barrier_init(const CallOptions& options) {
  return impl_->make_persistent(barrier_call(options));
}
void Communicator::send(const void* buffer, std::size_t count, DataType type, int peer, int tag,
                        const CallOptions& options) {
  impl_->call(send_call(buffer, count, type, peer, tag, options));
}
Work Communicator::send_async(const void* buffer, std::size_t count, DataType type, int peer,
                              int tag, const CallOptions& options) {
  return impl_->call_async(send_call(buffer, count, type, peer, tag, options));
}
Persistent Communicator::send_init(const void* buffer, std::size_t count, DataType type, int peer,
                                   int tag, const CallOptions& options) {
  return impl_->make_persistent(send_call(buffer, count, type, peer, tag, options));
}
Received Communicator::recv(void* buffer, std::size_t count, DataType type, int peer, int tag,
                            const CallOptions& options) {
  return impl_->call(recv_call(buffer, count, type, peer, tag, options));
}
Work Communicator::recv_async(void* buffer, std::size_t count, DataType type, int peer, int tag,
                              const CallOptions& options) {
  return impl_->call_async(recv_call(buffer, count, type, peer, tag, options));
}
Persistent Communicator::recv_init(void* buffer, std::size_t count, DataType type, int peer,
                                   int tag, const CallOptions& options) {
  return impl_->make_persistent(recv_call(buffer, count, type, peer, tag, options));
}

}  // namespace tutti
