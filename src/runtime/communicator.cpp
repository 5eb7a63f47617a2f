// The public face: each call written down as a Call, and handed to the inside.
#include <tutti/tutti.hpp>

#include "runtime/communicator_impl.h"
#include "runtime/setup.h"
#include "runtime/split.h"
#include "runtime/variable_blocks.h"

namespace tutti {

Work::Work(Operation& operation) noexcept : operation_(&operation) { operation.hold(); }
Work::Work(const Work& other) noexcept : operation_(other.operation_) {
  if (operation_ != nullptr) operation_->hold();
}
Work::Work(Work&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
Work& Work::operator=(Work other) noexcept {
  std::swap(operation_, other.operation_);
  return *this;
}
Work::~Work() {
  if (operation_ != nullptr) operation_->let_go();
}

bool Work::done() const noexcept { return operation_ == nullptr || operation_->done(); }

void Work::wait() {
  if (!done()) operation_->owner->help(*operation_, TimePoint::max());
  if (operation_ != nullptr && operation_->error()) throw *operation_->error();
}

void Work::wait(std::chrono::milliseconds limit) {
  if (!done() && !operation_->owner->help(*operation_, std::chrono::steady_clock::now() + limit))
    throw Error(ErrorKind::timeout, "the operation had not ended after " +
                                        std::to_string(limit.count()) +
                                        " ms of waiting; it goes on, and can be waited for again");
  wait();
}

void Work::then(Callback callback) {
  if (operation_ == nullptr)
    callback(nullptr);
  else
    operation_->then(std::move(callback));
}

struct Persistent::Prepared {
  CommunicatorImpl& communicator;
  PlannedCall call;
};

Persistent::Persistent(std::unique_ptr<Prepared> prepared) : prepared_(std::move(prepared)) {}
Persistent::Persistent(Persistent&&) noexcept = default;
Persistent& Persistent::operator=(Persistent&&) noexcept = default;
Persistent::~Persistent() = default;
void Persistent::run() { prepared_->communicator.run(prepared_->call); }
Work Persistent::start() { return prepared_->communicator.start(prepared_->call); }

Persistent CommunicatorImpl::init(const Call& call) {
  return Persistent(
      std::make_unique<Persistent::Prepared>(Persistent::Prepared{*this, prepare(call)}));
}

Communicator::Communicator(std::unique_ptr<CommunicatorImpl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator Communicator::from_env() { return from_env(Config::from_env()); }
Communicator Communicator::from_env(const Config& config) {
  return CommunicatorImpl::make(join_environment(config));
}

Communicator Communicator::create(std::shared_ptr<Store> store, int rank, int size) {
  return create(std::move(store), rank, size, Config::from_env());
}
Communicator Communicator::create(std::shared_ptr<Store> store, int rank, int size,
                                  const Config& config) {
  return CommunicatorImpl::make(join_store(std::move(store), rank, size, config));
}

std::vector<Communicator> Communicator::in_process(int size) {
  return in_process(size, Config::from_env());
}
std::vector<Communicator> Communicator::in_process(int size, const Config& config) {
  std::vector<Communicator> ranks;
  for (CommunicatorParts& parts : join_in_process(size, config))
    ranks.push_back(CommunicatorImpl::make(std::move(parts)));
  return ranks;
}

std::optional<Communicator> Communicator::split(int color, int key) {
  return impl_->split(split_card(color, key));
}
Communicator Communicator::dup() { return std::move(*impl_->split(dup_card())); }
std::optional<Communicator> Communicator::subgroup(std::span<const int> ranks) {
  return impl_->split(subgroup_card(ranks, rank(), size()));
}
std::size_t Communicator::memory_bytes() const { return impl_->parts().transport->memory_bytes(); }

int Communicator::rank() const noexcept { return impl_->rank(); }
int Communicator::size() const noexcept { return impl_->size(); }
std::shared_ptr<Store> Communicator::store() const { return impl_->parts().store; }
void Communicator::add_algorithm(std::string name, Planner planner) {
  impl_->own_algorithms().add(std::move(name), std::move(planner));
}
const std::vector<StartupPhase>& Communicator::startup() const noexcept {
  return impl_->parts().startup;
}
std::optional<Error> Communicator::failure() const { return impl_->failure(); }

namespace {

Call call(Collective what, const void* input, void* output, std::size_t count, DataType type, Op op,
          int root, const CallOptions& options) {
  return {.kind = {.what = what,
                   .type = type,
                   .op = op,
                   .root = root,
                   .count = count,
                   .premultiplied = options.premultiplier != nullptr,
                   .accumulate = options.accumulate},
          .input = input,
          .output = output,
          .timeout = options.timeout,
          .algorithm = options.algorithm,
          .extras = {options.premultiplier, nullptr},
          .group = options.group};
}
Call own_call(Collective what, const void* input, void* output, std::size_t count,
              const UserReduction& reduction, int root, const CallOptions& options) {
  Call made = call(what, input, output, count, DataType::uint8, Op::sum, root, options);
  made.kind.reduction = reduction_id(reduction.name, reduction.element_bytes);
  made.extras.reduction = &reduction;
  return made;
}
Call all_reduce_call(const void* input, void* output, std::size_t count, DataType type, Op op,
                     const CallOptions& o) {
  return call(Collective::all_reduce, input, output, count, type, op, 0, o);
}
Call reduce_call(const void* input, void* output, std::size_t count, DataType type, Op op, int root,
                 const CallOptions& o) {
  return call(Collective::reduce, input, output, count, type, op, root, o);
}
Call broadcast_call(void* buffer, std::size_t count, DataType type, int root,
                    const CallOptions& o) {
  return call(Collective::broadcast, buffer, buffer, count, type, Op::sum, root, o);
}
Call all_gather_call(const void* input, void* output, std::size_t count, DataType type,
                     const CallOptions& o) {
  return call(Collective::all_gather, input, output, count, type, Op::sum, 0, o);
}
Call reduce_scatter_call(const void* input, void* output, std::size_t count, DataType type, Op op,
                         const CallOptions& o) {
  return call(Collective::reduce_scatter, input, output, count, type, op, 0, o);
}
Call gather_call(const void* input, void* output, std::size_t count, DataType type, int root,
                 const CallOptions& o) {
  return call(Collective::gather, input, output, count, type, Op::sum, root, o);
}
Call scatter_call(const void* input, void* output, std::size_t count, DataType type, int root,
                  const CallOptions& o) {
  return call(Collective::scatter, input, output, count, type, Op::sum, root, o);
}
Call all_to_all_call(const void* input, void* output, std::size_t count, DataType type,
                     const CallOptions& o) {
  return call(Collective::all_to_all, input, output, count, type, Op::sum, 0, o);
}
/// A call whose blocks have lengths of their own. Hands itself to the inside, which reads them
/// before it returns.
struct VariableCall {
  VariableCall(Collective what, const void* input, void* output, const VariableBlocks& lengths,
               DataType type, Op op, int root, const CallOptions& o)
      : blocks(lengths),
        call(variable(
            tutti::call(what, input, output, longest_known(what, blocks), type, op, root, o),
            blocks)) {}
  VariableCall(const VariableCall&) = delete;
  VariableCall& operator=(const VariableCall&) = delete;

  static Call variable(Call uniform, const VariableBlocks& blocks) {
    uniform.kind.variable = true;
    uniform.variable = &blocks;
    return uniform;
  }

  const VariableBlocks blocks;
  const Call call;
};

Call barrier_call(const CallOptions& o) {
  return call(Collective::barrier, nullptr, nullptr, 0, DataType::uint8, Op::sum, 0, o);
}
TransferCall recv_call(void* buffer, std::size_t count, DataType type, int peer, int tag,
                       const CallOptions& o) {
  return {Direction::recv, type,       peer,   tag, count, static_cast<std::byte*>(buffer),
          o.timeout,       o.received, o.group};
}
TransferCall send_call(const void* buffer, std::size_t count, DataType type, int peer, int tag,
                       const CallOptions& o) {
  TransferCall call = recv_call(const_cast<void*>(buffer), count, type, peer, tag, o);
  call.direction = Direction::send;  // which only reads
  call.received = nullptr;
  return call;
}

}  // namespace

void Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                              Op op, const CallOptions& options) {
  impl_->run(all_reduce_call(input, output, count, type, op, options));
}
Work Communicator::all_reduce_async(const void* input, void* output, std::size_t count,
                                    DataType type, Op op, const CallOptions& options) {
  return impl_->run_async(all_reduce_call(input, output, count, type, op, options));
}
void Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, Op op,
                          int root, const CallOptions& options) {
  impl_->run(reduce_call(input, output, count, type, op, root, options));
}
Work Communicator::reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                Op op, int root, const CallOptions& options) {
  return impl_->run_async(reduce_call(input, output, count, type, op, root, options));
}
void Communicator::broadcast(void* buffer, std::size_t count, DataType type, int root,
                             const CallOptions& options) {
  impl_->run(broadcast_call(buffer, count, type, root, options));
}
Work Communicator::broadcast_async(void* buffer, std::size_t count, DataType type, int root,
                                   const CallOptions& options) {
  return impl_->run_async(broadcast_call(buffer, count, type, root, options));
}
void Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  impl_->run(all_gather_call(input, output, count, type, options));
}
Work Communicator::all_gather_async(const void* input, void* output, std::size_t count,
                                    DataType type, const CallOptions& options) {
  return impl_->run_async(all_gather_call(input, output, count, type, options));
}
void Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                  Op op, const CallOptions& options) {
  impl_->run(reduce_scatter_call(input, output, count, type, op, options));
}
Work Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count,
                                        DataType type, Op op, const CallOptions& options) {
  return impl_->run_async(reduce_scatter_call(input, output, count, type, op, options));
}
void Communicator::gather(const void* input, void* output, std::size_t count, DataType type,
                          int root, const CallOptions& options) {
  impl_->run(gather_call(input, output, count, type, root, options));
}
Work Communicator::gather_async(const void* input, void* output, std::size_t count, DataType type,
                                int root, const CallOptions& options) {
  return impl_->run_async(gather_call(input, output, count, type, root, options));
}
void Communicator::scatter(const void* input, void* output, std::size_t count, DataType type,
                           int root, const CallOptions& options) {
  impl_->run(scatter_call(input, output, count, type, root, options));
}
Work Communicator::scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                 int root, const CallOptions& options) {
  return impl_->run_async(scatter_call(input, output, count, type, root, options));
}
void Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  impl_->run(all_to_all_call(input, output, count, type, options));
}
Work Communicator::all_to_all_async(const void* input, void* output, std::size_t count,
                                    DataType type, const CallOptions& options) {
  return impl_->run_async(all_to_all_call(input, output, count, type, options));
}
void Communicator::all_gatherv(const void* input, void* output, std::span<const std::size_t> counts,
                               std::span<const std::size_t> displacements, DataType type,
                               const CallOptions& options) {
  const VariableCall v(Collective::all_gather, input, output, {{}, {counts, displacements}, 0},
                       type, Op::sum, 0, options);
  impl_->run(v.call);
}
Work Communicator::all_gatherv_async(const void* input, void* output,
                                     std::span<const std::size_t> counts,
                                     std::span<const std::size_t> displacements, DataType type,
                                     const CallOptions& options) {
  const VariableCall v(Collective::all_gather, input, output, {{}, {counts, displacements}, 0},
                       type, Op::sum, 0, options);
  return impl_->run_async(v.call);
}
void Communicator::reduce_scatterv(const void* input, void* output,
                                   std::span<const std::size_t> counts,
                                   std::span<const std::size_t> displacements, DataType type, Op op,
                                   const CallOptions& options) {
  const VariableCall v(Collective::reduce_scatter, input, output, {{counts, displacements}, {}, 0},
                       type, op, 0, options);
  impl_->run(v.call);
}
Work Communicator::reduce_scatterv_async(const void* input, void* output,
                                         std::span<const std::size_t> counts,
                                         std::span<const std::size_t> displacements, DataType type,
                                         Op op, const CallOptions& options) {
  const VariableCall v(Collective::reduce_scatter, input, output, {{counts, displacements}, {}, 0},
                       type, op, 0, options);
  return impl_->run_async(v.call);
}
void Communicator::gatherv(const void* input, std::size_t count, void* output,
                           std::span<const std::size_t> counts,
                           std::span<const std::size_t> displacements, DataType type, int root,
                           const CallOptions& options) {
  const VariableCall v(Collective::gather, input, output, {{}, {counts, displacements}, count},
                       type, Op::sum, root, options);
  impl_->run(v.call);
}
Work Communicator::gatherv_async(const void* input, std::size_t count, void* output,
                                 std::span<const std::size_t> counts,
                                 std::span<const std::size_t> displacements, DataType type,
                                 int root, const CallOptions& options) {
  const VariableCall v(Collective::gather, input, output, {{}, {counts, displacements}, count},
                       type, Op::sum, root, options);
  return impl_->run_async(v.call);
}
void Communicator::scatterv(const void* input, std::span<const std::size_t> counts,
                            std::span<const std::size_t> displacements, void* output,
                            std::size_t count, DataType type, int root,
                            const CallOptions& options) {
  const VariableCall v(Collective::scatter, input, output, {{counts, displacements}, {}, count},
                       type, Op::sum, root, options);
  impl_->run(v.call);
}
Work Communicator::scatterv_async(const void* input, std::span<const std::size_t> counts,
                                  std::span<const std::size_t> displacements, void* output,
                                  std::size_t count, DataType type, int root,
                                  const CallOptions& options) {
  const VariableCall v(Collective::scatter, input, output, {{counts, displacements}, {}, count},
                       type, Op::sum, root, options);
  return impl_->run_async(v.call);
}
void Communicator::all_to_allv(const void* input, std::span<const std::size_t> input_counts,
                               std::span<const std::size_t> input_displacements, void* output,
                               std::span<const std::size_t> output_counts,
                               std::span<const std::size_t> output_displacements, DataType type,
                               const CallOptions& options) {
  const VariableCall v(
      Collective::all_to_all, input, output,
      {{input_counts, input_displacements}, {output_counts, output_displacements}, 0}, type,
      Op::sum, 0, options);
  impl_->run(v.call);
}
Work Communicator::all_to_allv_async(const void* input, std::span<const std::size_t> input_counts,
                                     std::span<const std::size_t> input_displacements, void* output,
                                     std::span<const std::size_t> output_counts,
                                     std::span<const std::size_t> output_displacements,
                                     DataType type, const CallOptions& options) {
  const VariableCall v(
      Collective::all_to_all, input, output,
      {{input_counts, input_displacements}, {output_counts, output_displacements}, 0}, type,
      Op::sum, 0, options);
  return impl_->run_async(v.call);
}
void Communicator::barrier(const CallOptions& options) { impl_->run(barrier_call(options)); }
Work Communicator::barrier_async(const CallOptions& options) {
  return impl_->run_async(barrier_call(options));
}
void Communicator::send(const void* buffer, std::size_t count, DataType type, int peer, int tag,
                        const CallOptions& options) {
  impl_->run(send_call(buffer, count, type, peer, tag, options));
}
Work Communicator::send_async(const void* buffer, std::size_t count, DataType type, int peer,
                              int tag, const CallOptions& options) {
  return impl_->run_async(send_call(buffer, count, type, peer, tag, options));
}
Received Communicator::recv(void* buffer, std::size_t count, DataType type, int peer, int tag,
                            const CallOptions& options) {
  return impl_->run(recv_call(buffer, count, type, peer, tag, options));
}
Work Communicator::recv_async(void* buffer, std::size_t count, DataType type, int peer, int tag,
                              const CallOptions& options) {
  return impl_->run_async(recv_call(buffer, count, type, peer, tag, options));
}
Persistent Communicator::all_reduce_init(const void* input, void* output, std::size_t count,
                                         DataType type, Op op, const CallOptions& options) {
  return impl_->init(all_reduce_call(input, output, count, type, op, options));
}
Persistent Communicator::reduce_init(const void* input, void* output, std::size_t count,
                                     DataType type, Op op, int root, const CallOptions& options) {
  return impl_->init(reduce_call(input, output, count, type, op, root, options));
}
Persistent Communicator::broadcast_init(void* buffer, std::size_t count, DataType type, int root,
                                        const CallOptions& options) {
  return impl_->init(broadcast_call(buffer, count, type, root, options));
}
Persistent Communicator::all_gather_init(const void* input, void* output, std::size_t count,
                                         DataType type, const CallOptions& options) {
  return impl_->init(all_gather_call(input, output, count, type, options));
}
Persistent Communicator::reduce_scatter_init(const void* input, void* output, std::size_t count,
                                             DataType type, Op op, const CallOptions& options) {
  return impl_->init(reduce_scatter_call(input, output, count, type, op, options));
}
Persistent Communicator::barrier_init(const CallOptions& options) {
  return impl_->init(barrier_call(options));
}

void Communicator::all_reduce(const void* input, void* output, std::size_t count,
                              const UserReduction& reduction, const CallOptions& options) {
  impl_->run(own_call(Collective::all_reduce, input, output, count, reduction, 0, options));
}
Work Communicator::all_reduce_async(const void* input, void* output, std::size_t count,
                                    const UserReduction& reduction, const CallOptions& options) {
  return impl_->run_async(
      own_call(Collective::all_reduce, input, output, count, reduction, 0, options));
}
Persistent Communicator::all_reduce_init(const void* input, void* output, std::size_t count,
                                         const UserReduction& reduction,
                                         const CallOptions& options) {
  return impl_->init(own_call(Collective::all_reduce, input, output, count, reduction, 0, options));
}
void Communicator::reduce(const void* input, void* output, std::size_t count,
                          const UserReduction& reduction, int root, const CallOptions& options) {
  impl_->run(own_call(Collective::reduce, input, output, count, reduction, root, options));
}
Work Communicator::reduce_async(const void* input, void* output, std::size_t count,
                                const UserReduction& reduction, int root,
                                const CallOptions& options) {
  return impl_->run_async(
      own_call(Collective::reduce, input, output, count, reduction, root, options));
}
Persistent Communicator::reduce_init(const void* input, void* output, std::size_t count,
                                     const UserReduction& reduction, int root,
                                     const CallOptions& options) {
  return impl_->init(own_call(Collective::reduce, input, output, count, reduction, root, options));
}
void Communicator::reduce_scatter(const void* input, void* output, std::size_t count,
                                  const UserReduction& reduction, const CallOptions& options) {
  impl_->run(own_call(Collective::reduce_scatter, input, output, count, reduction, 0, options));
}
Work Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count,
                                        const UserReduction& reduction,
                                        const CallOptions& options) {
  return impl_->run_async(
      own_call(Collective::reduce_scatter, input, output, count, reduction, 0, options));
}
Persistent Communicator::reduce_scatter_init(const void* input, void* output, std::size_t count,
                                             const UserReduction& reduction,
                                             const CallOptions& options) {
  return impl_->init(
      own_call(Collective::reduce_scatter, input, output, count, reduction, 0, options));
}

}  // namespace tutti
