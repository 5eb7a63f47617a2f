#include "runtime/p2p/transfer.h"

#include <cassert>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "runtime/call.h"

namespace tutti {

std::string_view to_string(Direction direction) noexcept {
  return direction == Direction::send ? "send" : "recv";
}

namespace {

[[noreturn]] void refuse(const TransferCall& call, const std::string& what) {
  throw Error(ErrorKind::usage, fmt::format("{}: {}", to_string(call.direction), what));
}

}  // namespace

void check_transfer(const TransferCall& call, int size) {
  assert(size >= 1);
  const bool receives = call.direction == Direction::recv;
  if (static_cast<int>(call.type) >= kDataTypes)
    refuse(call, fmt::format("there is no data type {}", static_cast<int>(call.type)));
  if ((call.peer < 0 || call.peer >= size) && !(receives && call.peer == kAnySource))
    refuse(call, fmt::format("peer {} is not a rank; ranks are 0 to {}{}", call.peer, size - 1,
                             receives ? fmt::format(", or {} for any", kAnySource) : ""));
  if (call.tag < 0 && !(receives && call.tag == kAnyTag))
    refuse(call, fmt::format("tag {} is out of range; tags are 0 to {}{}", call.tag,
                             std::numeric_limits<int>::max(),
                             receives ? fmt::format(", or {} for any", kAnyTag) : ""));
  const std::size_t most =
      static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / size_of(call.type);
  if (call.count > most)
    refuse(call, fmt::format("{} elements of {} are more than memory can be; at most {}",
                             call.count, to_string(call.type), most));
  if (call.buffer == nullptr && call.count > 0) refuse(call, "the buffer is null");
  if (!is_timeout(call.timeout)) refuse(call, not_a_timeout(call.timeout));
}

std::string describe(const TransferCall& call) {
  const std::string peer = call.peer == kAnySource ? "any rank" : fmt::format("rank {}", call.peer);
  const std::string tag = call.tag == kAnyTag ? "any tag" : fmt::format("tag {}", call.tag);
  return fmt::format("{}({} x {}) {} {} with {}", to_string(call.direction), call.count,
                     to_string(call.type), call.direction == Direction::send ? "to" : "from", peer,
                     tag);
}

}  // namespace tutti
