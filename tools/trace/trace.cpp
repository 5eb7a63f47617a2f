#include "trace/trace.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include <tutti/error.hpp>
#include <tutti/types.hpp>

#include "collectives/algorithms/algorithms.h"
#include "common/wire.h"
#include "runtime/call.h"

namespace tutti::tools {
namespace {

bool known(const ReadRecord& record) {
  return (record.kinds & 0xff) < kCollectives && (record.kinds >> 8 & 0xff) < kDataTypes &&
         (record.kinds >> 16 & 0xff) < kOps;
}

std::string describe_transfer(const ReadRecord& record) {
  const auto type = static_cast<unsigned>(record.kinds >> 8 & 0xff);
  const auto tag = static_cast<std::int32_t>(record.kinds >> 32);
  const bool sends = (record.kinds & 0xff) == Record::kSend;
  const std::string peer = record.peer < 0 ? "any rank" : fmt::format("rank {}", record.peer);
  return fmt::format("{}({} x {}) {} {}{}", sends ? "send" : "recv", record.count,
                     type < kDataTypes ? to_string(static_cast<DataType>(type)) : "elements",
                     sends ? "to" : "from", peer,
                     tag == 0  ? ""
                     : tag < 0 ? " with any tag"
                               : fmt::format(" with tag {}", tag));
}

}  // namespace

const TracedOperation* TracedRank::last_collective() const noexcept {
  const auto found = std::find_if(operations.rbegin(), operations.rend(),
                                  [](const TracedOperation& each) { return !each.is_transfer(); });
  return found == operations.rend() ? nullptr : &*found;
}

std::string describe(const TracedOperation& operation) {
  const ReadRecord& record = operation.record;
  if (operation.is_transfer()) return describe_transfer(record);
  if (!known(record)) return "an operation that this tutti-trace does not know";
  CallSignature call;
  call.what = static_cast<Collective>(record.kinds & 0xff);
  call.type = static_cast<DataType>(record.kinds >> 8 & 0xff);
  call.op = static_cast<Op>(record.kinds >> 16 & 0xff);
  call.root = record.peer;
  call.count = record.count;
  const std::uint64_t flags = record.kinds >> 24;
  call.accumulates_f32 = (flags & StatusPage::kAccumulatesF32) != 0;
  call.reproducible = (flags & StatusPage::kReproducible) != 0;
  if ((flags & StatusPage::kOwnReduction) != 0)
    return fmt::format("{}({} elements, a reduction of the program)",
                       name_of(call.what, (record.kinds & Record::kVariable) != 0), call.count);
  if ((record.kinds & Record::kVariable) != 0)
    return fmt::format("{}({})", name_of(call.what, true), to_string(call.type));
  return tutti::describe(call);
}

std::string describe(StoreCall call) {
  return call == StoreCall::shrink ? "shrink" : call == StoreCall::grow ? "grow" : "agree";
}

std::string algorithm_of(const TracedOperation& operation) {
  const auto index = static_cast<std::size_t>(operation.record.kinds >> 32);
  return index < algorithms().size() ? std::string(algorithms()[index].name)
                                     : fmt::format("number {}", index);
}

std::string outcome_of(const TracedOperation& operation) {
  if (operation.under_way()) return "under way";
  const std::uint32_t outcome = operation.record.outcome;
  if (outcome == Record::kGood) return "ok";
  if (outcome == Record::kAbandoned) return "abandoned";
  return outcome <= static_cast<std::uint32_t>(ErrorKind::internal)
             ? std::string(to_string(static_cast<ErrorKind>(outcome)))
             : "failed";
}

std::string show_duration(std::int64_t nanoseconds) {
  const double ns = static_cast<double>(nanoseconds);
  if (nanoseconds < 0) return fmt::format("-{}", show_duration(-nanoseconds));
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.3g} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.3g} ms", ns / 1e6);
  if (ns < 100e9) return fmt::format("{:.3g} s", ns / 1e9);
  return fmt::format("{:.0f} s", ns / 1e9);
}

}  // namespace tutti::tools
