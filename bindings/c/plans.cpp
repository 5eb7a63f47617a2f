// Implements what the C ABI says of plans and of the launcher.
#include <tutti/launch.h>
#include <tutti/plans.h>

#include <fmt/format.h>

#include <tutti/launch.hpp>
#include <tutti/schedule.hpp>

#include "bindings/c/guarded.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"

using namespace tutti::c;
using tutti::Error;
using tutti::ErrorKind;

namespace {

tutti::Collective collective_of(tuttiCollective_t what) {
  const int number = static_cast<int>(what);
  if (number < 0 || number >= tutti::kCollectives)
    throw Error(ErrorKind::usage, fmt::format("there is no collective {}; there are 0 to {}",
                                              number, tutti::kCollectives - 1));
  return static_cast<tutti::Collective>(what);
}

}  // namespace

tuttiResult_t tuttiCommPrices(tuttiComm_t comm, tuttiCollective_t what, size_t count,
                              tuttiDataType_t dtype, tuttiOp_t op, int root,
                              const tuttiPrice_t** prices, int* number) {
  return guarded([&] {
    tuttiComm& its = checked(comm, "comm");
    const tuttiPrice_t*& first = result(prices, "prices");
    int& found = result(number, "number");
    std::vector<tutti::AlgorithmPrice> all =
        its.communicator.prices(collective_of(what), count, cpp(dtype), cpp(op), root);
    std::vector<tuttiPrice_t> rows;
    for (const tutti::AlgorithmPrice& price : all)
      rows.push_back({price.algorithm.c_str(), price.message_bytes, price.predicted_us.value_or(-1),
                      price.chosen ? 1 : 0});
    its.prices = std::move(all);  // The strings stay where they are.
    its.price_rows = std::move(rows);
    first = its.price_rows.data();
    found = static_cast<int>(its.price_rows.size());
  });
}

tuttiResult_t tuttiCommExplain(tuttiComm_t comm, tuttiCollective_t what, size_t count,
                               tuttiDataType_t dtype, tuttiOp_t op, int root, const char** text) {
  return guarded([&] {
    tuttiComm& its = checked(comm, "comm");
    const char*& place = result(text, "text");
    its.explained = its.communicator.explain(collective_of(what), count, cpp(dtype), cpp(op), root);
    place = its.explained.c_str();
  });
}

tuttiResult_t tuttiCommAddSchedules(tuttiComm_t comm, const char* path) {
  return guarded([&] {
    tuttiComm& its = checked(comm, "comm");
    if (path == nullptr) throw Error(ErrorKind::usage, "path is null");
    its.communicator.add_schedules(path);
  });
}

tuttiResult_t tuttiLaunched(int* launched) {
  return guarded([&] { result(launched, "launched") = tutti::launched() ? 1 : 0; });
}

tuttiResult_t tuttiNewcomer(int* newcomer) {
  return guarded([&] { result(newcomer, "newcomer") = tutti::newcomer() ? 1 : 0; });
}
