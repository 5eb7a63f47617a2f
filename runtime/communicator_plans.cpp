// These functions of the public class Communicator tell how it plans its calls, or change that.
#include <string>
#include <utility>
#include <vector>

#include <tutti/communicator.hpp>

#include "collectives/schedule/semantics.h"
#include "runtime/calling.h"
#include "runtime/communicator_impl.h"

namespace tutti {
namespace {

// In a forked child, a thread of the parent may have held a lock for ever.
void refuse_in_child(CommunicatorImpl& communicator, const char* call) {
  if (!communicator.parts().runtime->in_own_process()) communicator.failure().check_usable(call);
}

CallKind kind_of(Collective what, std::size_t count, DataType type, Op op, int root) {
  return {.what = what,
          .type = type,
          .op = op,
          .root = root,
          .count = count,
          .premultiplied = op == Op::premul_sum && collectives::reduces(what)};
}

}  // namespace

void Communicator::add_algorithm(std::string name, Planner planner) {
  refuse_in_child(*impl_, "add_algorithm");
  const Calling calling(*impl_, "add_algorithm");
  impl_->planner().own_algorithms().add(std::move(name), std::move(planner));
}

std::vector<std::string> Communicator::add_schedules(const std::string& path) {
  refuse_in_child(*impl_, "add_schedules");
  const Calling calling(*impl_, "add_schedules");
  impl_->planner().forget_last();  // the next call may be one for which a file is meant
  return impl_->planner().own_algorithms().add_files(path);
}

std::vector<AlgorithmPrice> Communicator::prices(Collective what, std::size_t count, DataType type,
                                                 Op op, int root) {
  refuse_in_child(*impl_, "prices");
  const Calling calling(*impl_, "prices");
  return impl_->planner().prices(kind_of(what, count, type, op, root));
}

std::string Communicator::explain(Collective what, std::size_t count, DataType type, Op op,
                                  int root) {
  refuse_in_child(*impl_, "explain");
  const Calling calling(*impl_, "explain");
  return impl_->planner().explain(kind_of(what, count, type, op, root));
}

}  // namespace tutti
