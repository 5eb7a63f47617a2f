#include "bindings/nccl/algorithms.h"

#include <strings.h>

#include <map>

#include "bindings/nccl/errors.h"

namespace tutti::nccl {
namespace {

constexpr std::string_view kRing = "ring", kTree = "double_binary_tree";

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool has_ring(Collective what) {
  return what == Collective::all_reduce || what == Collective::all_gather ||
         what == Collective::reduce_scatter || what == Collective::broadcast ||
         what == Collective::reduce;
}

bool has_tree(Collective what) { return what == Collective::all_reduce; }

std::string_view until(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// Returns whether `name`, without its protocol, is the beginning of `whole`.
bool names(std::string_view name, std::string_view whole) {
  name = name.substr(0, name.find('_'));
  return !name.empty() && name.size() <= whole.size() && same(name, whole.substr(0, name.size()));
}

Collective function_of(std::string_view name) {
  if (same(name, "allreduce")) return Collective::all_reduce;
  if (same(name, "allgather")) return Collective::all_gather;
  if (same(name, "reducescatter")) return Collective::reduce_scatter;
  if (same(name, "broadcast")) return Collective::broadcast;
  if (same(name, "reduce")) return Collective::reduce;
  throw Failure(ncclInvalidArgument, "NCCL_ALGO names the function '" + std::string(name) +
                                         "'; there are allreduce, allgather, reducescatter, "
                                         "broadcast and reduce");
}

}  // namespace

std::string_view algorithm_in(std::string_view list, Collective what) {
  const bool excludes = list.starts_with('^');
  if (excludes) list.remove_prefix(1);
  bool ring = false, tree = false;
  while (!list.empty()) {
    const std::string_view name = until(list, ',');
    if (names(name, "ring")) {
      if (!excludes && has_ring(what)) return kRing;
      ring = true;
    } else if (names(name, "tree")) {
      if (!excludes && has_tree(what)) return kTree;
      tree = true;
    }
  }
  if (excludes && tree && !ring && has_ring(what)) return kRing;
  if (excludes && ring && !tree && has_tree(what)) return kTree;
  return {};
}

Select select_as(const std::string& lists) {
  std::string for_all;
  std::map<Collective, std::string> of_function;
  std::string_view rest = lists;
  while (!rest.empty()) {
    std::string_view list = until(rest, ';');
    if (list.find(':') == std::string_view::npos) {
      for_all = list;
      continue;
    }
    const Collective what = function_of(until(list, ':'));
    of_function[what] = list;
  }
  return [for_all, of_function](const SelectQuery& query) -> std::string {
    if (query.ranks == 1) return {};
    const auto own = of_function.find(query.what);
    return std::string(algorithm_in(own == of_function.end() ? for_all : own->second, query.what));
  };
}

}  // namespace tutti::nccl
