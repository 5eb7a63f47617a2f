// The functions of the public class Communicator that tell how it plans its calls, or change that.
#include <string>
#include <utility>
#include <vector>

#include <tutti/communicator.hpp>

#include "runtime/calling.h"
#include "runtime/communicator_impl.h"

namespace tutti {

void Communicator::add_algorithm(std::string name, Planner planner) {
  const Calling calling(*impl_, "add_algorithm");
  impl_->planner().own_algorithms().add(std::move(name), std::move(planner));
}

std::vector<std::string> Communicator::add_schedules(const std::string& path) {
  const Calling calling(*impl_, "add_schedules");
  impl_->planner().forget_last();  // the next call may be one for which a file is meant
  return impl_->planner().own_algorithms().add_files(path);
}

std::vector<AlgorithmPrice> Communicator::prices(Collective what, std::size_t count, DataType type,
                                                 Op op, int root) {
  const Calling calling(*impl_, "prices");
  return impl_->planner().prices(
      {.what = what, .type = type, .op = op, .root = root, .count = count});
}

std::string Communicator::explain(Collective what, std::size_t count, DataType type, Op op,
                                  int root) {
  const Calling calling(*impl_, "explain");
  return impl_->planner().explain(
      {.what = what, .type = type, .op = op, .root = root, .count = count});
}

}  // namespace tutti
