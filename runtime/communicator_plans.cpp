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
  impl_->failure().refuse_in_child("add_algorithm");
  const Calling calling(*impl_, "add_algorithm");
  impl_->planner().own_algorithms().add(std::move(name), std::move(planner));
}

std::vector<std::string> Communicator::add_schedules(const std::string& path) {
  impl_->failure().refuse_in_child("add_schedules");
  const Calling calling(*impl_, "add_schedules");
  impl_->planner().forget_last();  // the next call may be one for which a file is meant
  return impl_->planner().own_algorithms().add_files(path);
}

std::vector<AlgorithmPrice> Communicator::prices(Collective what, std::size_t count, DataType type,
                                                 Op op, int root) {
  impl_->failure().refuse_in_child("prices");
  const Calling calling(*impl_, "prices");
  return impl_->planner().prices(kind_of(what, count, type, op, root));
}

std::string Communicator::explain(Collective what, std::size_t count, DataType type, Op op,
                                  int root) {
  impl_->failure().refuse_in_child("explain");
  const Calling calling(*impl_, "explain");
  return impl_->planner().explain(kind_of(what, count, type, op, root));
}

}  // namespace tutti
