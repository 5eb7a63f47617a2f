#include "model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tutti::worlds {
namespace {

constexpr std::size_t kGuardBytes = 32;
constexpr std::byte kGuard{0xa5}, kNothing{0xee};

// Element `index` of what world rank `rank` gives to a step. All sums are exact in each type.
int value(const Step& step, int rank, std::size_t index) {
  const auto r = static_cast<std::uint64_t>(rank);
  return static_cast<int>(((step.salt & 0xffff) + r * 7 + index * (r + 3)) % 7);
}

void write(DataType type, std::byte* to, int number) {
  const auto store = [to](auto typed) { std::memcpy(to, &typed, sizeof typed); };
  switch (type) {
    case DataType::int32: return store(static_cast<std::int32_t>(number));
    case DataType::int64: return store(static_cast<std::int64_t>(number));
    case DataType::f32: return store(static_cast<float>(number));
    default: return store(static_cast<std::uint8_t>(number));
  }
}

int reduced(const Step& step, const std::vector<int>& members, std::size_t index) {
  int result = value(step, members.front(), index);
  for (std::size_t k = 1; k < members.size(); ++k) {
    const int next = value(step, members[k], index);
    result = step.op == Op::sum   ? result + next
             : step.op == Op::min ? std::min(result, next)
                                  : std::max(result, next);
  }
  return result;
}

bool is_rooted(Collective what) {
  return what == Collective::broadcast || what == Collective::reduce ||
         what == Collective::gather || what == Collective::scatter;
}

// These are the numbers of blocks that a rank gives and gets.
struct Blocks {
  std::size_t in = 1, out = 1;
};
Blocks blocks_of(const Step& step, std::size_t ranks, bool is_root) {
  switch (step.collective) {
    case Collective::barrier: return {0, 0};
    case Collective::broadcast: return {1, 1};
    case Collective::all_reduce: return {1, 1};
    case Collective::reduce: return {1, is_root ? 1u : 0u};
    case Collective::all_gather: return {1, ranks};
    case Collective::reduce_scatter: return {ranks, 1};
    case Collective::gather: return {1, is_root ? ranks : 0};
    case Collective::scatter: return {is_root ? ranks : 0, 1};
    case Collective::all_to_all: return {ranks, ranks};
  }
  return {};
}

// Returns element `index` of the output of rank `me`.
int result(const Step& step, const std::vector<int>& members, int me, int root, std::size_t index) {
  const std::size_t own = static_cast<std::size_t>(me) * step.count;
  const std::size_t block = index / step.count, within = index % step.count;
  switch (step.collective) {
    case Collective::barrier: break;
    case Collective::broadcast: return value(step, members[root], index);
    case Collective::all_reduce:
    case Collective::reduce: return reduced(step, members, index);
    case Collective::reduce_scatter: return reduced(step, members, own + index);
    case Collective::all_gather:
    case Collective::gather: return value(step, members[block], within);
    case Collective::scatter: return value(step, members[root], own + index);
    case Collective::all_to_all: return value(step, members[block], own + within);
  }
  return 0;
}

Memory blank(std::size_t input_bytes, std::size_t output_bytes, bool shared) {
  Memory memory;
  const std::size_t first = shared ? std::max(input_bytes, output_bytes) : input_bytes;
  memory.input = memory.output = kGuardBytes;
  if (!shared) memory.output = 2 * kGuardBytes + first;
  memory.output_bytes = output_bytes;
  memory.bytes.assign(shared ? 2 * kGuardBytes + first : 3 * kGuardBytes + first + output_bytes,
                      kGuard);
  std::fill_n(memory.bytes.data() + memory.output, output_bytes, kNothing);
  return memory;
}

}  // namespace

std::string Memory::wrong(bool output_known) const {
  const std::vector<std::byte>& expected = output_known ? after : before;
  if (bytes == expected) return "";
  for (std::size_t k = 0; k < bytes.size(); ++k) {
    if (bytes[k] == expected[k]) continue;
    const bool in_output = k >= output && k < output + output_bytes;
    if (in_output && !output_known) continue;
    return fmt::format("byte {} of {} ({}; input begins at {}, output at {}) is {:#x}, not {:#x}",
                       k, bytes.size(), in_output ? "output" : "input or guard", input, output,
                       static_cast<int>(bytes[k]), static_cast<int>(expected[k]));
  }
  return "";
}

Memory memory_of_collective(const Step& step, const std::vector<int>& members, int me) {
  const std::size_t width = size_of(step.type), ranks = members.size();
  const int root = step.root % static_cast<int>(ranks);
  const Blocks blocks = blocks_of(step, ranks, me == root);
  const std::size_t block = step.count * width;
  const bool shared = step.collective == Collective::broadcast ||
                      (step.in_place && blocks.in > 0 && blocks.out > 0);
  Memory memory = blank(blocks.in * block, blocks.out * block, shared);
  if (shared && blocks.in < blocks.out) memory.input += static_cast<std::size_t>(me) * block;
  if (shared && blocks.out < blocks.in) memory.output += static_cast<std::size_t>(me) * block;
  const bool gives = step.collective != Collective::broadcast || me == root;
  for (std::size_t k = 0; gives && k < blocks.in * step.count; ++k)
    write(step.type, memory.in() + k * width, value(step, members[me], k));
  memory.before = memory.after = memory.bytes;
  for (std::size_t k = 0; k < blocks.out * step.count; ++k)
    write(step.type, memory.after.data() + memory.output + k * width,
          result(step, members, me, is_rooted(step.collective) ? root : 0, k));
  return memory;
}

Memory memory_of_send(const Step& step, int rank) {
  const std::size_t width = size_of(step.type);
  Memory memory = blank(step.count * width, 0, false);
  for (std::size_t k = 0; k < step.count; ++k)
    write(step.type, memory.in() + k * width, value(step, rank, k));
  memory.before = memory.after = memory.bytes;
  return memory;
}

Memory memory_of_recv(const Step& step, int source) {
  const std::size_t width = size_of(step.type);
  Memory memory = blank(0, step.count * width, false);
  memory.before = memory.after = memory.bytes;
  for (std::size_t k = 0; k < step.count; ++k)
    write(step.type, memory.after.data() + memory.output + k * width, value(step, source, k));
  return memory;
}

namespace {

bool has(const std::vector<int>& members, int rank) {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

bool concerns(const faulty::Event& event, const std::vector<int>& group) {
  return group.size() > 1 && has(group, event.rank) &&
         (event.peer == faulty::Event::kAllPeers || has(group, event.peer));
}

void add_kinds_of(const faulty::Event& event, std::set<ErrorKind>& kinds) {
  using Kind = faulty::Event::Kind;
  const bool forever = event.lasts == faulty::Event::kForever;
  switch (event.kind) {
    case Kind::cut: kinds.insert(forever ? ErrorKind::timeout : ErrorKind::peer_lost); break;
    case Kind::silence:
      if (forever) kinds.insert(ErrorKind::timeout);
      break;
    case Kind::damage: kinds.insert(ErrorKind::corrupt); break;
    case Kind::flip:
      // A message with another tag is never received, and its sender may close meanwhile.
      kinds.insert(
          {ErrorKind::mismatch, ErrorKind::corrupt, ErrorKind::timeout, ErrorKind::peer_lost});
      break;
  }
}

}  // namespace

std::set<ErrorKind> allowed(const Plan& plan, const Happened& happened, int slot, int rank,
                            TimePoint now) {
  std::set<ErrorKind> kinds;
  const std::vector<int> group = members(plan, slot, rank);
  if (group.size() < 2 && slot < plan.bases) return kinds;
  for (const faulty::Event& event : plan.faults.events) {
    if (now < event.at) continue;
    std::set<ErrorKind> own;
    add_kinds_of(event, own);
    // A rank that waits for a deadline comes late to its calls on other communicators.
    if (own.contains(ErrorKind::timeout)) kinds.insert(ErrorKind::timeout);
    if (concerns(event, group)) kinds.merge(own);
  }
  for (std::size_t k = 0; k < plan.steps.size(); ++k) {
    const Step& step = plan.steps[k];
    const bool same_group = step.slot == slot;  // a rank of another colour may be meant
    if (same_group && happened.begun[k])
      kinds.insert(step.what == What::abort ? ErrorKind::peer_lost : ErrorKind::mismatch);
    // A member that did not get its part says why, or is found to have closed it.
    if (step.what != What::split || step.child != slot || happened.broken[k].empty()) continue;
    kinds.insert(happened.broken[k].begin(), happened.broken[k].end());
    kinds.insert(ErrorKind::peer_lost);
  }
  return kinds;
}

bool may_be_wrong(const Plan& plan, const std::vector<int>& group) {
  return std::any_of(plan.faults.events.begin(), plan.faults.events.end(),
                     [&](const faulty::Event& event) {
                       return event.kind == faulty::Event::Kind::flip && concerns(event, group);
                     });
}

}  // namespace tutti::worlds
